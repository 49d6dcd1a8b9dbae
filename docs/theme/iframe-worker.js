// Search without a server: browsers refuse workers to pages that are files, so a hidden frame does a worker's work.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inner = frame.contentWindow
      const load = source =>
        new Promise((resolve, reject) => {
          const script = inner.document.createElement("script")
          script.src = source
          script.onload = resolve
          script.onerror = reject
          inner.document.body.appendChild(script)
        })
      inner.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve())
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = load(url)
      this.inner = inner
      this.frame = frame
      this.addEventListener("message", event => this.onmessage && this.onmessage(event))
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}

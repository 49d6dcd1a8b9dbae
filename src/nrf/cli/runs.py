"""`nrf runs`."""

from __future__ import annotations

from nrf.cli.parsing import Folder, say
from nrf.errors import InputError, needs


def runs(folder: Folder, /, host: str = "127.0.0.1", port: int = 8766) -> int:
    """Show run folders in the browser: curves, samples, comparison; live while they train. Nothing is written.

    Example: nrf runs runs --port 8766

    Args:
        folder: A folder of run folders, or one run folder.
        host: Address to listen on. Anybody who can reach an address other than 127.0.0.1 can read the runs.
        port: Port to listen on.
    """
    from nrf.serve.runs import LOOPBACK, runs_app

    with needs("serve", "nrf runs"):
        import uvicorn

    if not 0 < port < 65536:
        raise InputError(f"port must lie between 1 and 65535, got {port}")
    app = runs_app(folder, hosts=LOOPBACK if host in LOOPBACK else ["*"])
    say(f"runs of {folder} at http://{host}:{port} (Ctrl-C ends it)")
    uvicorn.run(app, host=host, port=port, log_level="warning")
    return 0

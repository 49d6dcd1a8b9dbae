"""Where presets and training were up to 0.1; :mod:`nrf.runs` has them now, :mod:`nrf.reproduce` the experiments."""

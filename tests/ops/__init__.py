"""The operator scoreboard: PyTorch's own operator database against the device."""

"""Public names whose meaning `oneflow.set_dialect` switches: {public name: torch path}."""

DIALECT = {
    "oneflow.device": "torch.device",
}

"""Record outputs and gradients of flowvision models on real OneFlow 0.9.0 into nn_flowvision.json.

    REAL_ONEFLOW_PYTHON tests/golden/record_nn_flowvision.py

flowvision must be importable there. Weights and images come from numpy.random.RandomState in the order of
state_dict(); everything is float64, so that two correct libraries agree to many digits.
"""

import json
import os

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = {  # name: image size
    "resnet18": 64,
    "resnext50_32x4d": 32,
    "mobilenet_v2": 64,
    "mobilenet_v3_small": 64,
    "shufflenet_v2_x0_5": 64,
    "squeezenet1_1": 64,
    "densenet121": 32,
    "efficientnet_b0": 64,
    "ghostnet": 64,
    "mnasnet0_5": 64,
    "regnet_x_400mf": 64,
    "res2net50_26w_4s": 64,
    "genet_small": 64,
    "alexnet": 64,
    "vgg11": 32,
    "hrnet_w18": 64,
    "convmixer_1024_20": 32,
    "van_tiny": 64,
    "vit_tiny_patch16_224": 224,
    "deit_tiny_patch16_224": 224,
    "swin_tiny_patch4_window7_224": 224,
    "cswin_tiny_224": 224,
    "convnext_tiny_224": 64,
    "poolformer_s12": 64,
    "levit_128s": 224,
    "mlp_mixer_b16_224": 224,
    "resmlp_12_224": 224,
    "pvt_tiny": 224,
    "crossformer_tiny_patch4_group7_224": 224,
    "mobilevit_xx_small": 64,
    "regionvit_tiny_224": 224,
}


def weights(model, flow):
    """Set every floating entry of state_dict from one stream, scaled to keep activations near 1."""
    rs = np.random.RandomState(0)
    new = {}
    for name, value in model.state_dict().items():
        shape = tuple(int(n) for n in value.shape)
        if str(value.dtype).split(".")[-1] != "float64" or not shape:
            new[name] = value
            continue
        noise = rs.standard_normal(shape)
        if name.endswith("running_var"):
            array = 1 + 0.1 * np.abs(noise)
        elif len(shape) > 1:
            array = noise / np.sqrt(np.prod(shape[1:]))
        else:
            array = 0.1 * noise + (1.0 if name.endswith("weight") else 0.0)
        new[name] = flow.tensor(array)
    model.load_state_dict(new)


def measure(flow, name, size):
    """State names, logits and gradients (of the weighted sum of the logits) of one model in eval mode."""
    from flowvision.models.registry import ModelCreator

    model = ModelCreator.create_model(name, pretrained=False, num_classes=7).to(flow.float64).eval()
    weights(model, flow)
    rs = np.random.RandomState(1)
    x = flow.tensor(rs.standard_normal((2, 3, size, size)))
    x.requires_grad_(True)
    out = model(x)
    (out * flow.tensor(rs.standard_normal(tuple(out.shape)))).sum().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return {
        "keys": len(model.state_dict()),
        "last_key": list(model.state_dict())[-1],
        "logits": out.detach().numpy().ravel().tolist(),
        "input_grad": float((x.grad * x.grad).sum()) ** 0.5,
        "first_grad": float((grads[0] * grads[0]).sum()) ** 0.5,
        "grads": len(grads),
        "all_grads": sum(float((g * g).sum()) for g in grads) ** 0.5,
    }


def main():
    import oneflow as flow

    if not hasattr(flow.jit, "_script_if_tracing"):
        flow.jit._script_if_tracing = lambda f: (
            f
        )  # asked for by flowvision's newest release, unused by the models
    recorded = {}
    for name, size in MODELS.items():
        print(name, flush=True)
        try:
            recorded[name] = measure(flow, name, size)
        except Exception as error:
            print("left out", name, type(error).__name__, str(error).strip().split("\n")[-1][:150])
    with open(os.path.join(HERE, "nn_flowvision.json"), "w") as f:
        f.write("{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in recorded.items()) + "}\n")
    print(len(recorded), "models recorded with OneFlow", flow.__version__)


if __name__ == "__main__":
    main()

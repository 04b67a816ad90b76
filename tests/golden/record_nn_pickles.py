"""Record pickles of modules made by real OneFlow 0.9.0 into nn_pickles.json.

REAL_ONEFLOW_PYTHON tests/golden/record_nn_pickles.py
"""

import base64
import json
import os
import pickle

MODULES = [
    "nn.Dropout(0.3)",
    "nn.AdaptiveAvgPool2d(2)",
    "nn.AdaptiveMaxPool2d(2)",
    "nn.AvgPool2d(2)",
    "nn.AvgPool3d(2)",
    "nn.AvgPool1d(2)",
    "nn.MaxPool2d(2)",
    "nn.MaxPool1d(2)",
    "nn.PixelShuffle(2)",
    "nn.PixelShuffle(None,2,1)",
    "nn.Softshrink()",
    "nn.Hardshrink()",
    "nn.Softsign()",
    "nn.MSELoss('sum')",
    "nn.CrossEntropyLoss()",
    "nn.NLLLoss()",
    "nn.BCELoss()",
    "nn.BCEWithLogitsLoss()",
    "nn.KLDivLoss()",
    "nn.L1Loss()",
    "nn.SmoothL1Loss()",
    "nn.ConstantPad2d(1)",
    "nn.ReLU()",
    "nn.GELU()",
    "nn.SiLU()",
    "nn.ELU()",
    "nn.Softmax(1)",
    "nn.Flatten()",
    "nn.Upsample(scale_factor=2)",
    "nn.Sequential(nn.ReLU(),nn.Dropout(0.1))",
    "nn.LeakyReLU(0.2)",
    "nn.Hardswish()",
    "nn.ReLU6()",
    "nn.Hardsigmoid()",
    "nn.Identity()",
    "nn.ZeroPad2d(1)",
    "nn.ReflectionPad2d(1)",
    "nn.Mish()",
    "nn.Tanh()",
    "nn.Softplus()",
    "nn.LogSoftmax(1)",
    "nn.GLU()",
    "nn.Threshold(0.1,2.)",
    "nn.CosineSimilarity()",
    "nn.UpsamplingNearest2d(scale_factor=2)",
    "nn.Fold((3,3),2)",
    "nn.Unfold(2)",
    "nn.TripletMarginLoss()",
    "nn.MarginRankingLoss()",
    "nn.CTCLoss()",
    "nn.Linear(2,3)",
    "nn.Conv2d(4,2,3)",
    "nn.BatchNorm2d(4)",
    "nn.LSTM(4,3)",
    "nn.LayerNorm(4)",
    "nn.GroupNorm(2,4)",
    "nn.Embedding(5,4)",
    "nn.PReLU()",
    "nn.ModuleList([nn.ReLU()])",
]


def main():
    import oneflow as flow

    recorded = {
        code: base64.b64encode(pickle.dumps(eval(code, {"nn": flow.nn}))).decode() for code in MODULES
    }
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "nn_pickles.json"), "w") as f:
        f.write("{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in recorded.items()) + "}\n")
    print(len(recorded), "modules pickled with OneFlow", flow.__version__)


if __name__ == "__main__":
    main()

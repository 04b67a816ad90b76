"""Deploy: write a graph to disk and run it in a fresh process that has none of its Python.

    python docs/examples/deploy.py [folder]
"""
import subprocess
import sys
import tempfile

import oneflow as flow
import oneflow.nn as nn

SERVER = """
import sys
import oneflow as flow
graph = flow.load_graph(sys.argv[1] + "/net")
x = flow.load(sys.argv[1] + "/input")
flow.save(graph(x), sys.argv[1] + "/answer")
print("served", tuple(x.shape), "without the model's class")
"""


class Inference(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.config.set_backend("aten")

    def build(self, x):
        return self.model(x).softmax(1)


def main(folder=None):
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder or temporary
        flow.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
        graph, x = Inference(model), flow.randn(2, 1, 8, 8)
        want = graph(x)
        flow.save(graph, f"{folder}/net")  # the program and its weights
        flow.save(x, f"{folder}/input")
        subprocess.run([sys.executable, "-c", SERVER, folder], check=True)
        answer = flow.load(f"{folder}/answer")
        print("same numbers:", flow.equal(answer, want))

        graph.export(f"{folder}/net.pt2")  # what plain torch.export.load opens
        plain = flow.export.load(f"{folder}/net.pt2").module()
        print("torch.export agrees:", flow.allclose(plain(x), want, atol=1e-6))
        return want, answer, plain(x)


if __name__ == "__main__":
    main(*sys.argv[1:2])

"""A benchmark process for the original OneFlow: it reads a case, then answers each "step" line with wall and
CPU seconds.

ONEFLOW_PYTHON tests/benchmarks/graph_oneflow.py MODEL OPTIMIZER SIZE [FLOWVISION_FOLDER]
"""

import os
import sys
import time

MODELS = ("tiny", "mlp", "lstm", "mobilenet_v2", "resnet18", "resnet50")


def make(flow, name, n):
    nn = flow.nn
    if name in ("tiny", "mlp"):
        width, layers = (64, []) if name == "tiny" else (256, [])
        for _ in range(2 if name == "tiny" else 3):
            layers += (
                [nn.Linear(width, width, bias=name == "tiny")]
                + ([] if name == "tiny" else [nn.BatchNorm1d(width)])
                + [nn.ReLU()]
            )
        return nn.Sequential(*layers, nn.Linear(width, 10)), (flow.randn(n, width), flow.randint(0, 10, (n,)))
    if name == "lstm":

        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.rnn, self.head = (
                    nn.Embedding(1000, 64),
                    nn.LSTM(64, 64, 2, batch_first=True),
                    nn.Linear(64, 1000),
                )

            def forward(self, ids):
                return self.head(self.rnn(self.embed(ids))[0]).flatten(0, 1)

        ids = flow.randint(0, 1000, (n, 16))
        return Recurrent(), (ids, ids.flatten())
    import flowvision.models

    return getattr(flowvision.models, name)(), (flow.randn(n, 3, 64, 64), flow.randint(0, 10, (n,)))


def main():
    name, optimizer, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.path[:] = [
        p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))
    ]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the libraries must not be read as an answer
    import oneflow as flow

    if len(sys.argv) > 4:
        sys.path.append(sys.argv[4])
    model, batch = make(flow, name, n)
    loss_of = flow.nn.CrossEntropyLoss()
    model.train(optimizer != "infer")

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m, self.loss = model, loss_of
            if optimizer != "infer":
                self.add_optimizer(
                    flow.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
                    if optimizer == "sgd"
                    else flow.optim.AdamW(model.parameters(), lr=1e-4)
                )

        def build(self, x, y):
            loss = self.loss(self.m(x), y)
            if optimizer != "infer":
                loss.backward()
            return loss

    graph = Step()
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        start, busy = time.perf_counter(), time.process_time()
        graph(*batch).numpy()
        print(time.perf_counter() - start, time.process_time() - busy, file=answers, flush=True)


if __name__ == "__main__":
    main()

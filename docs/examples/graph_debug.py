"""What a graph does: its text before and after the first call, debug levels, the program, and errors with your line.

    python docs/examples/graph_debug.py [page.html]
"""
import sys

import oneflow as flow
import oneflow.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.fc2(nn.functional.relu(self.fc1(x)))


class Train(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        self.config.set_backend("aten")

    def build(self, x, y):
        loss = ((self.model(x) - y) ** 2).mean()
        loss.backward()
        return loss


class Branch(nn.Graph):
    def __init__(self):
        super().__init__()
        self.config.strict()  # an error in place of a call in eager mode

    def build(self, x):
        return x * 2 if x.sum() > 0 else x  # a static program has no such branch


def main(page=None):
    x, y = flow.randn(6, 4), flow.randn(6, 2)
    graph = Train(Net())
    before = repr(graph)
    print("before the first call:", before.count("\n"), "lines")
    graph.debug(1)  # 0 stages and times, 1 each module, 2 each operator, 3 with code locations
    graph(x, y)
    graph.debug(-1)
    print(graph)  # now with inputs, operators and outputs
    print(graph.program)  # the whole step as readable Python
    if page:
        graph.to_html(page, x, y)
        print(f"{page}: the program by module with the time of each operator")
    try:
        Branch()(x)
    except RuntimeError as error:
        print("\nA branch on a value:\n", error, sep="")
        return before, repr(graph), str(graph.program), str(error)


if __name__ == "__main__":
    main(*sys.argv[1:2])

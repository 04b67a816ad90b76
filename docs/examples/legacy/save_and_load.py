"""Save a trained LeNet, load it in a fresh session, and serve it as a saved model.

    python docs/examples/legacy/save_and_load.py
"""
import tempfile

import digits
import numpy as np

import oneflow as flow
import oneflow.typing as tp


def main():
    import lenet

    _, accuracy, snapshot = lenet.main(epochs=6)
    flow.clear_default_session()
    names = {}

    @flow.global_function(type="predict")
    def infer(image: tp.Numpy.Placeholder((100, 1, 28, 28))) -> tp.Numpy:
        names["image"] = image.logical_blob_name
        out = flow.nn.softmax(lenet.lenet(image))
        names["out"] = out.logical_blob_name
        return out

    flow.load_variables(flow.checkpoint.get(snapshot))
    _, (images, labels) = digits.load(28)
    images, labels = images[:100], labels[:100]
    probabilities = infer(images)
    print(f"accuracy after loading: {(probabilities.argmax(1) == labels).mean():.1%}")

    folder = tempfile.mkdtemp() + "/lenet_models"
    builder = flow.saved_model.ModelBuilder(folder)
    signature = builder.ModelName("lenet").Version(1).AddFunction(infer).AddSignature("classify")
    signature.Input("image", names["image"]).Output("probabilities", names["out"])
    builder.Save()

    with flow.serving.InferenceSession() as session:
        session.load_saved_model(folder)
        session.launch()
        served = session.run("infer", image=images)["probabilities"]
    error = float(np.abs(served - probabilities).max())
    print(f"saved model in {folder}, largest difference to the job {error:.1e}")
    return accuracy, float((probabilities.argmax(1) == labels).mean()), error


if __name__ == "__main__":
    main()

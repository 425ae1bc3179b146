"""Handwritten digits: a network trained with scikit-learn runs on ClikaRT, eagerly and as a traced graph.

    python digits.py [FILE]

Trains on two thirds of the 1,797 digits that scikit-learn ships, moves the weights into an nn.Module, and prints the
accuracy on the held-out third, how many predictions agree with scikit-learn's, and the time per batch.  With FILE it
also saves weights and images there; examples/cpp/digits.cpp and examples/c/digits.c read that file.
"""

import sys
import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import clika_runtime as crt
from clika_runtime import nn


class Network(nn.Module):
    """64 pixels, one hidden layer, ten digits."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, hidden)
        self.output = nn.Linear(hidden, 10)

    def forward(self, x: crt.Tensor) -> crt.Tensor:
        return crt.softmax(self.output(crt.relu(self.hidden(x))), dim=-1)


def checksum(predictions: np.ndarray) -> int:
    """FNV-1a, 64 bits, one byte for each prediction."""
    value = 0xCBF29CE484222325
    for digit in predictions.tolist():
        value = ((value ^ digit) * 0x100000001B3) % 2**64
    return value


def milliseconds(run, repeats: int = 50) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def main() -> None:
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
    train, held_out = train_test_split(np.arange(len(labels)), test_size=1 / 3, random_state=0)

    classifier = MLPClassifier(hidden_layer_sizes=(64,), max_iter=1000, random_state=0).fit(images[train], labels[train])

    network = Network(hidden=64)
    state = {}
    for name, weight, bias in zip(("hidden", "output"), classifier.coefs_, classifier.intercepts_, strict=True):
        state[f"{name}.weight"] = crt.tensor(weight.T)  # scikit-learn keeps [in, out], nn.Linear [out, in]
        state[f"{name}.bias"] = crt.tensor(bias)
    network.load_state_dict(state)

    x = crt.tensor(images)
    graph = crt.trace(lambda inputs: [network(inputs[0])], example_inputs=[x], input_names=["images"], output_names=["probabilities"])
    eager = crt.argmax(network(x), dims=[1]).numpy()
    (probabilities,) = graph.run({"images": x})
    traced = crt.argmax(probabilities, dims=[1]).numpy()
    reference = classifier.predict(images)

    right = int((eager[held_out] == labels[held_out]).sum())
    print(f"accuracy on the held-out third: {right / len(held_out):.4f} ({right} of {len(held_out)})")
    print(f"predictions that agree with scikit-learn: {int((eager == reference).sum())} of {len(labels)}")
    print(f"eager and traced agree: {bool((eager == traced).all())}")
    print(f"checksum over all predictions: {checksum(eager):016x}")
    batch = len(labels)
    print(f"time per batch of {batch}: scikit-learn {milliseconds(lambda: classifier.predict_proba(images)):.3f} ms", end=", ")
    print(f"eager {milliseconds(lambda: network(x).numpy()):.3f} ms, traced {milliseconds(lambda: graph.run([x])[0].numpy()):.3f} ms")

    if len(sys.argv) > 1:
        mask = np.zeros(len(labels), dtype=np.bool_)
        mask[held_out] = True
        data = {"images": x, "labels": crt.tensor(labels), "held_out": crt.tensor(mask)}
        crt.save({"network": network, "data": data}, sys.argv[1])
        print(f"saved {sys.argv[1]}")


if __name__ == "__main__":
    main()

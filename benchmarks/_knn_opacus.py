"""A linear classifier trained by Opacus: a program of its own, for any interpreter that has it.

``python benchmarks/_knn_opacus.py DATA.npz`` with arrays ``x``, ``y``, ``queries`` and ``settings``, rows
of (epsilon, delta, sampling rate, epochs, step size, clip). Prints one JSON line a setting: the labels
predicted. It imports nothing of this package, so the interpreter needs no more than torch and opacus.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np


def trained(x, y, classes, epsilon, delta, rate, epochs, step, clip):
    """Return softmax weights (d, L) from Poisson-sampled noisy steps, at (epsilon, delta)."""
    import opacus
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(x.shape[1], classes, bias=False)
    torch.nn.init.zeros_(model.weight)
    sgd = torch.optim.SGD(model.parameters(), lr=step, momentum=0.9)
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    loader = torch.utils.data.DataLoader(pairs, batch_size=max(1, round(rate * len(x))))
    model, sgd, loss, loader = opacus.PrivacyEngine(accountant="prv").make_private_with_epsilon(
        module=model,
        optimizer=sgd,
        data_loader=loader,
        criterion=torch.nn.CrossEntropyLoss(),
        target_epsilon=epsilon,
        target_delta=delta,
        epochs=int(epochs),
        max_grad_norm=clip,
        grad_sample_mode="ghost",  # the same steps, without a gradient a record in memory
    )
    for _ in range(int(epochs)):
        for rows, labels in loader:
            sgd.zero_grad()
            loss(model(rows), labels).backward()
            sgd.step()
    return next(iter(model.parameters())).detach().numpy().T


def main():
    warnings.filterwarnings("ignore")
    with np.load(sys.argv[1]) as file:
        x, y, queries, settings = (file[key] for key in ("x", "y", "queries", "settings"))
    for setting in settings.tolist():
        weights = trained(x, y, int(y.max()) + 1, *setting)
        print(json.dumps((queries @ weights).argmax(axis=1).tolist()), flush=True)


if __name__ == "__main__":
    main()

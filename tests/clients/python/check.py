"""Uses the Python client on the cluster of KUBECONFIG: one line `ok CLAIM` or `FAILED CLAIM: why` per use."""

import logging
import sys

from kubernetes import config

import custom  # noqa: F401  registers its uses
import objects  # noqa: F401  registers its uses
from report import run_all

if __name__ == "__main__":
    config.load_kube_config()
    # An informer logs the end of its own connection when it is stopped.
    logging.getLogger("kubernetes.informer").setLevel(logging.CRITICAL)
    sys.exit(0 if run_all(at_once=8) else 1)

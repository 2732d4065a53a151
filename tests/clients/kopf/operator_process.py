"""A running example operator, and kubectl beside it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

PATIENCE = 60  # seconds, for anything; the machine may be busy


def until(what, condition):
    """The first true value of the condition; waits for it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.2)


def kubectl(*arguments, text=None):
    """What kubectl prints; it must succeed."""
    done = try_kubectl(*arguments, text=text)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def try_kubectl(*arguments, text=None):
    return subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, timeout=PATIENCE)


def get(kind, name):
    """An object as JSON, None if there is none."""
    done = try_kubectl("get", kind, name, "--ignore-not-found", "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


class Operator:
    """`kopf run` of files, or a file itself as a program."""

    def __init__(self, files, *options, embedded=False):
        kopf = os.path.join(os.path.dirname(sys.executable), "kopf")
        command = [sys.executable, *files] if embedded else [kopf, "run", "--verbose", *options, *files]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.lines = []
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def says(self, text):
        """Waits for a line with this text."""

        def said():
            if any(text in line for line in self.lines):
                return True
            assert self.process.poll() is None, f"it ended without saying {text!r}: {self.tail()}"
            return False

        try:
            until(text, said)
        except AssertionError as error:
            raise AssertionError(f"{error}; it said: {self.tail()}") from None

    def tail(self):
        return " / ".join(self.lines[-6:])

    def watches(self):
        """Waits until it follows the objects of the examples."""
        self.says("Starting the watch-stream for kopfexamples")

    def end(self):
        """Waits for a program that ends by itself."""
        code = self.process.wait(PATIENCE)
        self.reader.join()
        assert code == 0, f"it ended with {code}: {self.tail()}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.reader.join()

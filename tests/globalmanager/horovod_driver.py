"""Runs the driver of horovodrun, without workers: PYTHON horovod_driver.py SCRIPT SLOTS.

The tests run this file with a Python that has horovod, and never import it. Each line of stdin is a
list of hosts in JSON. The program waits until Horovod has read this list, lets Horovod assign the
ranks anew, as it does when the workers have seen the change, and answers with a line of JSON: the
hosts that have ranks, in their order, or the error that ends the job.
"""

import json
import sys
import time
from typing import Any

WAIT_S = 30.0
POLL_S = 0.02


class Rendezvous:
    """Stands for the server where workers ask for their ranks. There are no workers."""

    def init(self, assignments: Any) -> None:
        self.hosts = list(dict.fromkeys(each.hostname for each in assignments))

    def stop(self) -> None:
        pass


def run_worker(_slot: Any, events: Any) -> tuple[int, float]:
    events[0].wait()  # until the driver ends
    return 0, time.time()


def wait_until_read(driver: Any, hosts: list[str]) -> None:
    end_s = time.monotonic() + WAIT_S
    while set(driver._host_manager.current_hosts.host_slots) != set(hosts):
        if time.monotonic() > end_s:
            found = driver._host_manager.current_hosts
            raise TimeoutError(f"Horovod has read {found}, not {hosts}")
        time.sleep(POLL_S)


def main() -> None:
    from horovod.runner.elastic import driver as drivers
    from horovod.runner.elastic.discovery import HostDiscoveryScript

    script, slots = sys.argv[1], int(sys.argv[2])
    drivers.DISCOVER_HOSTS_FREQUENCY_SECS = POLL_S
    rendezvous = Rendezvous()
    discovery = HostDiscoveryScript(script, slots)
    driver = drivers.ElasticDriver(rendezvous, discovery, min_num_proc=1, max_num_proc=64)
    driver._timeout = WAIT_S
    is_started = False
    for line in sys.stdin:
        hosts = json.loads(line)
        try:
            wait_until_read(driver, hosts)
            if is_started:
                driver.resume()
            else:
                driver.start(1, run_worker)
            is_started = True
            answer = {"hosts": rendezvous.hosts, "processes": driver.world_size()}
        except (RuntimeError, TimeoutError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    driver.stop()


if __name__ == "__main__":  # Horovod runs the script in a process that imports this file
    main()

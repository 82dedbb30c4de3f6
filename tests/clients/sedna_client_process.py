"""Calls requests and websockets as Sedna's library does. Runs where only those two are installed.

The library's own calls are `requests.request(method=, url=, json=)` for joint inference and for
reports, and `websockets.connect(url, ping_timeout=, ping_interval=, max_size=)` for federated
learning. Prints one line of JSON.
"""

import asyncio
import json
import sys

import requests
import websockets


def ask(url: str) -> list[object]:
    answer = requests.request(method="POST", url=url, json={"data": [[0.5]]})
    return [answer.status_code, answer.text]


async def subscribe(url: str) -> str:
    try:
        connection = await websockets.connect(
            url, ping_timeout=5, ping_interval=15, max_size=16 * 1024 * 1024
        )
        await connection.send("subscribe")
        return str(await connection.recv())
    except OSError as error:
        return type(error).__name__


if __name__ == "__main__":
    call, url = sys.argv[1:]
    print(json.dumps(ask(url) if call == "ask" else asyncio.run(subscribe(url))))

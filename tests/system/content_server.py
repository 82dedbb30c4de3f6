"""A server in the cluster with the content of one Model, as slow as a line to an edge.

    python3 -m tests.system.content_server ADDRESS PORT BYTES BYTES_PER_S CUT_AT

The content is the same at each start. The server knows ranges, and ends its first answer after
CUT_AT bytes. It prints a line for each request: the first byte that was asked for.
"""

import random
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECE_BYTES = 256 * 1024


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)


class Handler(BaseHTTPRequestHandler):
    data = b""
    bytes_per_s = 0.0
    cut_at = 0

    def do_GET(self) -> None:
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(match[1]) if match else 0
        print(start, flush=True)
        self.send_response(206 if match else 200)
        whole = len(self.data)
        self.send_header("Content-Length", str(whole - start))
        self.send_header("ETag", '"v1"')
        if match:
            self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        self.end_headers()
        end, Handler.cut_at = Handler.cut_at or whole, 0
        for at in range(start, end, PIECE_BYTES):
            self.wfile.write(self.data[at : min(at + PIECE_BYTES, end)])
            time.sleep(PIECE_BYTES / self.bytes_per_s)


if __name__ == "__main__":
    address, port, size, rate, cut_at = sys.argv[1:]
    Handler.data, Handler.bytes_per_s = content(int(size)), float(rate)
    Handler.cut_at = int(cut_at)
    ThreadingHTTPServer((address, int(port)), Handler).serve_forever()

"""The same computation behind an HTTP server, for `architecture: http`.

Requests that overlap run in threads of one process, as in the HTTP servers of Python on Cloud Run.
"""

import http.server
import json
import os

from handler import handler


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are used again

    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        status, answer = 200, None
        try:
            answer = handler(event)
        except ValueError as error:  # a parameter that it does not take
            status, answer = 400, {"error": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


class Threads(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # connections that wait, more than Cloud Run's 80 at a time


if __name__ == "__main__":
    Threads(("", int(os.environ["PORT"])), Server).serve_forever()

"""An HTTP server that answers every POST with 200 and nothing."""

import http.server
import os


class Empty(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are used again

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format, *args):
        pass


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Empty).serve_forever()

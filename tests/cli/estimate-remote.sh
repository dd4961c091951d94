# SPDX-License-Identifier: MIT
# memtally fetches the header of a model behind a URL, by ranges, and nothing else; without --remote nothing.
memtally sample-model llama-3.1-8b model.gguf --sparse --quiet --type q4_k
mkdir -p org/name/resolve/main
ln model.gguf org/name/resolve/main/model.gguf
cat > server.py << 'END'
import http.server, os, re, threading

served = 0


class Ranges(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        global served
        if self.path == "/served":
            return self.answer(200, str(served).encode())
        path = "." + self.path
        if not os.path.isfile(path):
            return self.answer(404, b"")
        size = os.path.getsize(path)
        asked = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(asked[1]), min(int(asked[2]), size - 1)) if asked else (0, size - 1)
        with open(path, "rb") as file:
            file.seek(first)
            body = file.read(min(last - first + 1, 1 << 26))
        served += len(body)
        self.answer(206, body, f"bytes {first}-{last}/{size}")

    def do_HEAD(self):
        self.do_GET()

    def answer(self, status, body, content_range=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Accept-Ranges", "bytes")
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
with open("port.new", "w") as file:
    file.write(str(server.server_address[1]))
os.rename("port.new", "port")
server.serve_forever()
END
python3 server.py &
server=$!
while ! test -f port; do sleep 0.1; done
url=http://127.0.0.1:$(cat port)
memtally estimate "$url/model.gguf" 2> errors || echo "exit $?"
memtally estimate "$url/model.gguf" --remote --context 4096 --json > far.json
echo "exit $?"
memtally estimate model.gguf --context 4096 --json > near.json
python3 - "$url" << 'END'
import json, sys, urllib.request

far, near = (json.load(open(f"{where}.json")) for where in ("far", "near"))
print(far["places"] == near["places"])
served = int(urllib.request.urlopen(f"{sys.argv[1]}/served").read())
print(0 < served < 64 << 20)
END
HF_ENDPOINT=$url memtally estimate org/name/model.gguf --remote --context 4096 --json > /dev/null
echo "exit $?"
HF_ENDPOINT=$url memtally estimate org/name/missing.gguf --remote 2>&1 | sed "s|$url|URL|"
kill $server
# Without a network nothing is said of what the repository has. Nobody listens on port 1 of this host.
for name in some/model some/model/file.gguf; do
    HF_ENDPOINT=http://127.0.0.1:1 memtally estimate $name --remote 2>&1 | sed 's/: [^:]*: [A-Z].*;/: WHY;/'
    HF_ENDPOINT=http://127.0.0.1:1 memtally estimate $name --remote 2>/dev/null || echo "exit $?"
done

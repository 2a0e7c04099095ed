package uncia.runtime;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/** HTTP/1.1 to the one server that an instance has. */
final class Api {
    private static final String PREFIX = "/2018-06-01/runtime/";
    private static final int BUFFER = 65536;

    /** A class may be named at any length, and a header has an end. */
    private static final int MAX_KIND = 256;

    /** There is nobody at the other end any more. */
    static final class Gone extends Exception {
        private static final long serialVersionUID = 1;
    }

    /** A response that was read, with the names of its headers in lower case. */
    static final class Response {
        final int status;
        final Map<String, String> headers;
        final byte[] body;

        Response(int status, Map<String, String> headers, byte[] body) {
            this.status = status;
            this.headers = headers;
            this.body = body;
        }
    }

    private final String host;
    private InputStream input;
    private OutputStream output;
    private final byte[] buffer = new byte[BUFFER];
    private int position;
    private int limit;

    Api(String address) throws Gone {
        host = address;
        connect();
    }

    /** Makes the connection, or makes it anew. */
    void connect() throws Gone {
        String address = host;
        position = 0;
        limit = 0;
        int colon = address.lastIndexOf(':');
        try {
            // By number, for which nobody is asked.
            InetAddress server = InetAddress.getByName(address.substring(0, colon));
            Socket socket = new Socket(server, Integer.parseInt(address.substring(colon + 1)));
            socket.setTcpNoDelay(true);
            input = socket.getInputStream();
            output = socket.getOutputStream();
        } catch (IOException error) {
            throw new Gone();
        }
    }

    byte[] get(String path, String headers) {
        String head = "GET " + PREFIX + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + headers + "\r\n";
        return head.getBytes(StandardCharsets.ISO_8859_1);
    }

    /** A request with a body; {@code kind} is the type of the error that it reports, or null. */
    byte[] post(String path, byte[] body, String kind) {
        String head = "POST " + PREFIX + path + " HTTP/1.1\r\nHost: " + host
                + "\r\nContent-Type: application/json\r\nContent-Length: " + body.length + "\r\n"
                + (kind == null ? "" : "Lambda-Runtime-Function-Error-Type: " + ascii(kind) + "\r\n") + "\r\n";
        byte[] start = head.getBytes(StandardCharsets.ISO_8859_1);
        byte[] request = new byte[start.length + body.length];
        System.arraycopy(start, 0, request, 0, start.length);
        System.arraycopy(body, 0, request, start.length, body.length);
        return request;
    }

    /** Only what fits a header: a class may be named in any script. */
    private static String ascii(String text) {
        StringBuilder plain = new StringBuilder();
        for (int i = 0; i < Math.min(text.length(), MAX_KIND); i++) {
            char letter = text.charAt(i);
            plain.append(letter > ' ' && letter < 127 ? letter : '?');
        }
        return plain.toString();
    }

    void send(byte[] request) throws Gone {
        try {
            output.write(request);
        } catch (IOException error) {
            throw new Gone();
        }
    }

    Response receive() throws Gone {
        try {
            String first = line();
            int status = Integer.parseInt(first.substring(9, 12));
            Map<String, String> headers = new HashMap<>();
            int length = 0;
            for (String line = line(); !line.isEmpty(); line = line()) {
                int colon = line.indexOf(':');
                String name = line.substring(0, colon).toLowerCase(Locale.ROOT);
                String value = line.substring(colon + 1).trim();
                headers.put(name, value);
                if (name.equals("content-length")) {
                    length = Integer.parseInt(value);
                }
            }
            byte[] body = new byte[length];
            for (int read = 0; read < length; ) {
                int some = Math.min(length - read, available());
                System.arraycopy(buffer, position, body, read, some);
                position += some;
                read += some;
            }
            return new Response(status, headers, body);
        } catch (IOException error) {
            throw new Gone();
        }
    }

    private String line() throws IOException, Gone {
        ByteArrayOutputStream text = new ByteArrayOutputStream(128);
        while (true) {
            available();
            int letter = buffer[position++];
            if (letter == '\n') {
                return text.toString(StandardCharsets.ISO_8859_1);
            }
            if (letter != '\r') {
                text.write(letter);
            }
        }
    }

    /** How many bytes can be taken from the buffer, at least one. */
    private int available() throws IOException, Gone {
        if (position == limit) {
            position = 0;
            limit = Math.max(input.read(buffer), 0);
            if (limit == 0) {
                throw new Gone();
            }
        }
        return limit - position;
    }
}

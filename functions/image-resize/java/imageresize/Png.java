package imageresize;

import java.util.zip.CRC32;
import java.util.zip.Deflater;

/**
 * Makes the source picture without Java's own classes for pictures, which the first invocation is to load: gradients
 * with noise, so that it does not compress to nothing.
 */
final class Png {
    static final int WIDTH = 170;
    static final int HEIGHT = 287;

    private static final int CHANNELS = 4;
    private static final int NOISE = 48;
    // Signature, then chunks: length, name, content, and the check of name and content.
    private static final byte[] SIGNATURE = {(byte) 0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    private static final int AROUND_BYTES = 12;

    private final byte[] bytes = new byte[WIDTH * HEIGHT * 2 * CHANNELS];
    private int length;

    private Png() {}

    static byte[] make() {
        Png png = new Png();
        System.arraycopy(SIGNATURE, 0, png.bytes, 0, SIGNATURE.length);
        png.length = SIGNATURE.length;
        byte[] header = new byte[13];
        header[3] = (byte) WIDTH;
        header[6] = (byte) (HEIGHT >> 8);
        header[7] = (byte) HEIGHT;
        // Eight bits of each of red, green, blue and opacity.
        header[8] = 8;
        header[9] = 6;
        png.add("IHDR", header, header.length);
        byte[] packed = new byte[WIDTH * HEIGHT * 2 * CHANNELS];
        Deflater deflater = new Deflater();
        deflater.setInput(rows());
        deflater.finish();
        int size = deflater.deflate(packed);
        deflater.end();
        png.add("IDAT", packed, size);
        png.add("IEND", header, 0);
        byte[] whole = new byte[png.length];
        System.arraycopy(png.bytes, 0, whole, 0, whole.length);
        return whole;
    }

    private static byte[] rows() {
        byte[] rows = new byte[HEIGHT * (1 + WIDTH * CHANNELS)];
        int at = 0;
        int random = 1;
        for (int y = 0; y < HEIGHT; y++) {
            // No filter.
            at++;
            for (int x = 0; x < WIDTH; x++) {
                random = random * 1_664_525 + 1_013_904_223;
                int noise = (random >>> 16) % NOISE;
                rows[at++] = (byte) (x + noise);
                rows[at++] = (byte) (y * 2 / 3 + noise);
                rows[at++] = (byte) (200 - x + noise);
                rows[at++] = (byte) 255;
            }
        }
        return rows;
    }

    private void add(String name, byte[] content, int size) {
        number(size);
        int start = length;
        for (int index = 0; index < name.length(); index++) {
            bytes[length++] = (byte) name.charAt(index);
        }
        System.arraycopy(content, 0, bytes, length, size);
        length += size;
        CRC32 check = new CRC32();
        check.update(bytes, start, size + AROUND_BYTES - 8);
        number((int) check.getValue());
    }

    private void number(int value) {
        for (int shift = 24; shift >= 0; shift -= 8) {
            bytes[length++] = (byte) (value >> shift);
        }
    }
}

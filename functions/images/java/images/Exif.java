package images;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** Writes the EXIF data of a photograph: TIFF within a JPEG's segment APP1 (CIPA DC-008). */
final class Exif {
    static final String MAKE = "Uncia";
    static final String MODEL = "Seed";
    static final String TAKEN = "2020:10:19 12:34:56";

    private static final int START_BYTES = 2;
    private static final int HEADER_BYTES = 8;
    private static final int ENTRY_BYTES = 12;
    private static final int TEXT = 2;
    private static final int LONG = 4;
    private static final int RATIONAL = 5;

    private Exif() {}

    static byte[] into(byte[] jpeg, Position position) {
        byte[] tiff = tiff(position);
        byte[] name = "Exif\0\0".getBytes(StandardCharsets.US_ASCII);
        ByteBuffer whole = ByteBuffer.allocate(jpeg.length + 4 + name.length + tiff.length);
        whole.put(jpeg, 0, START_BYTES);
        whole.putShort((short) 0xFFE1).putShort((short) (2 + name.length + tiff.length)).put(name).put(tiff);
        whole.put(jpeg, START_BYTES, jpeg.length - START_BYTES);
        return whole.array();
    }

    private static byte[] tiff(Position position) {
        // The directories stand one behind the other, each followed by its longer values.
        Directory main = new Directory(HEADER_BYTES);
        main.text(0x010F, MAKE);
        main.text(0x0110, MODEL);
        main.number(0x8769, 0);
        main.number(0x8825, 0);
        Directory taken = new Directory(HEADER_BYTES + main.size());
        taken.text(0x9003, TAKEN);
        Directory gps = new Directory(HEADER_BYTES + main.size() + taken.size());
        gps.text(1, String.valueOf(position.north()));
        gps.rationals(2, position.rationals(position.latitude()));
        gps.text(3, String.valueOf(position.east()));
        gps.rationals(4, position.rationals(position.longitude()));
        Directory linked = new Directory(HEADER_BYTES);
        linked.text(0x010F, MAKE);
        linked.text(0x0110, MODEL);
        linked.number(0x8769, taken.start);
        linked.number(0x8825, gps.start);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.writeBytes(ByteBuffer.allocate(HEADER_BYTES)
                .order(ByteOrder.LITTLE_ENDIAN)
                .put((byte) 'I')
                .put((byte) 'I')
                .putShort((short) 42)
                .putInt(HEADER_BYTES)
                .array());
        for (Directory directory : new Directory[] {linked, taken, gps}) {
            out.writeBytes(directory.bytes());
        }
        return out.toByteArray();
    }

    private static final class Directory {
        final int start;
        private final java.util.List<byte[]> entries = new java.util.ArrayList<>();
        private final java.util.List<byte[]> values = new java.util.ArrayList<>();

        Directory(int start) {
            this.start = start;
        }

        void text(int tag, String text) {
            byte[] value = (text + "\0").getBytes(StandardCharsets.US_ASCII);
            add(tag, TEXT, value.length, value);
        }

        void number(int tag, int number) {
            add(tag, LONG, 1, little(4).putInt(number).array());
        }

        void rationals(int tag, int[][] rationals) {
            ByteBuffer value = little(8 * rationals.length);
            for (int[] rational : rationals) {
                value.putInt(rational[0]).putInt(rational[1]);
            }
            add(tag, RATIONAL, rationals.length, value.array());
        }

        /** Values of up to four bytes stand in the entry. */
        private void add(int tag, int type, int count, byte[] value) {
            entries.add(little(8).putShort((short) tag).putShort((short) type).putInt(count).array());
            values.add(value);
        }

        int size() {
            return bytes().length;
        }

        byte[] bytes() {
            ByteBuffer head = little(2 + ENTRY_BYTES * entries.size() + 4).putShort((short) entries.size());
            ByteArrayOutputStream longer = new ByteArrayOutputStream();
            for (int index = 0; index < entries.size(); index++) {
                byte[] value = values.get(index);
                head.put(entries.get(index));
                if (value.length > 4) {
                    head.putInt(start + head.capacity() + longer.size());
                    longer.writeBytes(value);
                } else {
                    head.put(value).put(new byte[4 - value.length]);
                }
            }
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            out.writeBytes(head.array());
            out.writeBytes(longer.toByteArray());
            return out.toByteArray();
        }

        private static ByteBuffer little(int size) {
            return ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
        }
    }
}

package images;

import com.google.gson.JsonObject;
import java.awt.Color;
import java.awt.Graphics2D;
import java.awt.RenderingHints;
import java.awt.image.BufferedImage;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import javax.imageio.ImageIO;

/** Makes the photograph: dark discs and squares on a bright gradient, and where it was taken, all by a seed. */
final class Seed {
    private static final int COLUMNS = 6;
    private static final int ROWS = 8;
    private static final int LEAST_DISCS = 5;
    // Of discs and squares: edges that JPEG blurs are too much of smaller ones.
    private static final int LEAST_SIZE = 16;
    // In which cells have room for these.
    private static final int LEAST_PIXELS = 256;
    private static final int MOST_PIXELS = 8192;
    private static final int MOST_SEED = 1_000_000;
    private static final int MARKER_BYTES = 2;
    private static final int START_OF_FRAME = 0xC0;
    // 40,000 times 25,000 pixels.
    private static final int HUGE_WIDTH = 40_000;
    private static final int HUGE_HEIGHT = 25_000;

    private Seed() {}

    static void make(JsonObject found, Map<String, Object> given) throws IOException {
        int width = number(given, "width", 2976, LEAST_PIXELS, MOST_PIXELS);
        int height = number(given, "height", 3968, LEAST_PIXELS, MOST_PIXELS);
        Random random = new Random(number(given, "seed", 1, 0, MOST_SEED));
        String form = (String) given.getOrDefault("form", "whole");
        int discs = discs(random);
        byte[] jpeg = encoded(draw(width, height, discs, random));
        Position position = Position.of(random);
        byte[] photograph = form.equals("plain") ? jpeg : Exif.into(jpeg, position);
        if (form.equals("truncated")) {
            photograph = Arrays.copyOf(photograph, photograph.length / 2);
        } else if (form.equals("huge")) {
            resize(photograph, HUGE_WIDTH, HUGE_HEIGHT);
        }
        String name = found.get("name").getAsString();
        Store.put(Store.photograph(name), photograph);
        JsonObject expected = new JsonObject();
        expected.addProperty("discs", discs);
        expected.addProperty("width", width);
        expected.addProperty("height", height);
        expected.addProperty("bytes", photograph.length);
        if (!form.equals("plain")) {
            expected.add("geo", position.described());
        }
        Records.expect(name, expected);
        found.add("expected", expected);
    }

    /** How many discs there are: of the cells of a grid, each has a disc, a square or nothing. */
    static int discs(Random random) {
        return LEAST_DISCS + random.nextInt(COLUMNS * ROWS - 2 * LEAST_DISCS);
    }

    private static int number(Map<String, Object> given, String name, int otherwise, int low, int high) {
        Object value = given.getOrDefault(name, otherwise);
        if (!(value instanceof Number number) || number.intValue() != number.doubleValue()) {
            throw new IllegalArgumentException(name + ": '" + value + "' is not a whole number");
        }
        if (number.intValue() < low || number.intValue() > high) {
            throw new IllegalArgumentException(name + ": " + number + " is not between " + low + " and " + high);
        }
        return number.intValue();
    }

    static BufferedImage draw(int width, int height, int discs, Random random) {
        BufferedImage image = new BufferedImage(width, height, BufferedImage.TYPE_3BYTE_BGR);
        Graphics2D pen = image.createGraphics();
        pen.setRenderingHint(RenderingHints.KEY_ANTIALIASING, RenderingHints.VALUE_ANTIALIAS_ON);
        for (int y = 0; y < height; y++) {
            int shade = 200 + 55 * y / height;
            pen.setColor(new Color(shade, shade, 255));
            pen.fillRect(0, y, width, 1);
        }
        int cellWidth = width / COLUMNS;
        int cellHeight = height / ROWS;
        int largest = Math.min(cellWidth, cellHeight) - 8;
        int[] cells = random.ints(0, COLUMNS * ROWS).distinct().limit(discs + LEAST_DISCS).toArray();
        for (int index = 0; index < cells.length; index++) {
            int size = Math.max(LEAST_SIZE, largest / 2 + random.nextInt(largest / 2));
            int left = cells[index] % COLUMNS * cellWidth + 4 + random.nextInt(cellWidth - 8 - size + 1);
            int top = cells[index] / COLUMNS * cellHeight + 4 + random.nextInt(cellHeight - 8 - size + 1);
            pen.setColor(new Color(random.nextInt(100), random.nextInt(100), random.nextInt(100)));
            if (index < discs) {
                pen.fillOval(left, top, size, size);
            } else {
                pen.fillRect(left, top, size, size);
            }
        }
        pen.dispose();
        return image;
    }

    static byte[] encoded(BufferedImage image) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        ImageIO.setUseCache(false);
        if (!ImageIO.write(image, "jpg", bytes)) {
            throw new IOException("there is no encoder for JPEG");
        }
        return bytes.toByteArray();
    }

    /** Makes a JPEG's header say that it has another size. */
    private static void resize(byte[] jpeg, int width, int height) {
        int at = MARKER_BYTES;
        while ((jpeg[at + 1] & 0xFF) != START_OF_FRAME) {
            at += MARKER_BYTES + ((jpeg[at + 2] & 0xFF) << 8 | jpeg[at + 3] & 0xFF);
        }
        // Behind the marker, the segment's length and the precision.
        int[] sizes = {height, width};
        for (int index = 0; index < sizes.length; index++) {
            jpeg[at + 5 + 2 * index] = (byte) (sizes[index] >> 8);
            jpeg[at + 6 + 2 * index] = (byte) sizes[index];
        }
    }
}

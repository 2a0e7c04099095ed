package images;

import com.google.gson.JsonObject;
import java.awt.image.BufferedImage;
import java.io.IOException;
import java.util.ArrayDeque;

/** Finds discs: dark areas, each in one piece, that are as wide as high and fill their box as a circle does. */
final class Discs {
    private static final int STEP = 4;
    private static final int DARK = 128;
    // Smaller ones are noise, and too few pixels to tell what they are.
    private static final int LEAST_WIDTH = 6;
    private static final double CIRCLE = Math.PI / 4;
    private static final double TOLERANCE = 0.08;
    private static final double MOST_SKEW = 1.15;

    private Discs() {}

    static void find(JsonObject found) throws IOException {
        byte[] bytes = Store.get(Store.photograph(found.get("name").getAsString()));
        Picture.Size size = Picture.size(bytes);
        // Small pictures are looked at whole.
        int step = Math.max(1, Math.min(STEP, Math.min(size.width(), size.height()) / 500));
        found.getAsJsonObject("record").addProperty("discs", count(Picture.decode(bytes, step)));
    }

    static int count(BufferedImage image) {
        int width = image.getWidth();
        int height = image.getHeight();
        boolean[] dark = new boolean[width * height];
        int[] row = new int[width];
        for (int y = 0; y < height; y++) {
            image.getRGB(0, y, width, 1, row, 0, width);
            for (int x = 0; x < width; x++) {
                int brightness = ((row[x] >> 16 & 255) * 299 + (row[x] >> 8 & 255) * 587 + (row[x] & 255) * 114) / 1000;
                dark[y * width + x] = brightness < DARK;
            }
        }
        int discs = 0;
        ArrayDeque<Integer> left = new ArrayDeque<>();
        for (int start = 0; start < dark.length; start++) {
            if (!dark[start]) {
                continue;
            }
            int area = 0;
            int minX = width;
            int maxX = 0;
            int minY = height;
            int maxY = 0;
            dark[start] = false;
            left.push(start);
            while (!left.isEmpty()) {
                int at = left.pop();
                int x = at % width;
                int y = at / width;
                area++;
                minX = Math.min(minX, x);
                maxX = Math.max(maxX, x);
                minY = Math.min(minY, y);
                maxY = Math.max(maxY, y);
                int[] neighbours = {x > 0 ? at - 1 : -1, x < width - 1 ? at + 1 : -1, at - width, at + width};
                for (int next : neighbours) {
                    if (next >= 0 && next < dark.length && dark[next]) {
                        dark[next] = false;
                        left.push(next);
                    }
                }
            }
            discs += isDisc(area, maxX - minX + 1, maxY - minY + 1) ? 1 : 0;
        }
        return discs;
    }

    private static boolean isDisc(int area, int width, int height) {
        double skew = (double) Math.max(width, height) / Math.min(width, height);
        double fills = area / ((double) width * height);
        return Math.min(width, height) >= LEAST_WIDTH && skew <= MOST_SKEW && Math.abs(fills - CIRCLE) <= TOLERANCE;
    }
}

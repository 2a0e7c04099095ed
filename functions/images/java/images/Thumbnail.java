package images;

import com.google.gson.JsonObject;
import java.awt.Graphics2D;
import java.awt.RenderingHints;
import java.awt.image.BufferedImage;
import java.io.IOException;

/** Stores a small picture of a photograph. */
final class Thumbnail {
    /** The most pixels of its width and of its height. */
    static final int MOST = 250;

    private Thumbnail() {}

    /** Whether a picture is as large as a thumbnail of another must be, but for how pixels are rounded. */
    static boolean fits(int width, int height, int wholeWidth, int wholeHeight) {
        double factor = Math.min(1, (double) MOST / Math.max(wholeWidth, wholeHeight));
        boolean isAlike = Math.abs(width - wholeWidth * factor) < 1 && Math.abs(height - wholeHeight * factor) < 1;
        return isAlike && Math.max(width, height) <= MOST;
    }

    static void make(JsonObject found) throws IOException {
        String name = found.get("name").getAsString();
        byte[] bytes = Store.get(Store.photograph(name));
        Picture.Size size = Picture.size(bytes);
        double factor = Math.min(1, (double) MOST / Math.max(size.width(), size.height()));
        int width = Math.max(1, (int) Math.round(size.width() * factor));
        int height = Math.max(1, (int) Math.round(size.height() * factor));
        // Twice as large at least, so that neighbours are blended and none is passed over.
        BufferedImage image = Picture.decode(bytes, Math.max(1, (int) (1 / factor / 2)));
        BufferedImage small = new BufferedImage(width, height, BufferedImage.TYPE_3BYTE_BGR);
        Graphics2D pen = small.createGraphics();
        pen.setRenderingHint(RenderingHints.KEY_INTERPOLATION, RenderingHints.VALUE_INTERPOLATION_BILINEAR);
        pen.drawImage(image, 0, 0, width, height, null);
        pen.dispose();
        byte[] thumbnail = Seed.encoded(small);
        Store.put(Store.thumbnail(name), thumbnail);
        JsonObject described = new JsonObject();
        described.addProperty("key", Store.thumbnail(name));
        described.addProperty("width", width);
        described.addProperty("height", height);
        described.addProperty("bytes", thumbnail.length);
        found.getAsJsonObject("record").add("thumbnail", described);
    }
}

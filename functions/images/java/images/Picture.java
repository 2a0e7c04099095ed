package images;

import java.awt.image.BufferedImage;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.Iterator;
import java.util.Locale;
import javax.imageio.ImageIO;
import javax.imageio.ImageReadParam;
import javax.imageio.ImageReader;
import javax.imageio.event.IIOReadWarningListener;
import javax.imageio.stream.ImageInputStream;

/** Reads pictures: only so many pixels, and only whole ones. */
final class Picture {
    /** More are not decoded: of each, a picture takes three bytes. */
    static final long MOST_PIXELS = 100_000_000;

    record Size(int width, int height) {}

    private interface Reading<T> {
        T of(ImageReader reader) throws IOException;
    }

    private Picture() {}

    /** The size that a picture says it has. */
    static Size size(byte[] bytes) throws IOException {
        return read(bytes, reader -> new Size(reader.getWidth(0), reader.getHeight(0)));
    }

    /** The format that a picture is in, such as JPEG. */
    static String format(byte[] bytes) throws IOException {
        return read(bytes, reader -> reader.getFormatName().toUpperCase(Locale.ROOT));
    }

    /** A picture, of which every {@code step}th row and column is taken. */
    static BufferedImage decode(byte[] bytes, int step) throws IOException {
        return read(bytes, reader -> {
            ImageReadParam parameters = reader.getDefaultReadParam();
            parameters.setSourceSubsampling(step, step, 0, 0);
            String[] warned = new String[1];
            IIOReadWarningListener listener = (source, warning) -> warned[0] = warning;
            reader.addIIOReadWarningListener(listener);
            BufferedImage image = reader.read(0, parameters);
            // The decoder paints what is missing grey, and only mentions it.
            if (warned[0] != null) {
                throw new IllegalArgumentException("the picture is damaged: " + warned[0]);
            }
            return image;
        });
    }

    private static <T> T read(byte[] bytes, Reading<T> reading) throws IOException {
        ImageIO.setUseCache(false);
        try (ImageInputStream stream = ImageIO.createImageInputStream(new ByteArrayInputStream(bytes))) {
            Iterator<ImageReader> readers = ImageIO.getImageReaders(stream);
            if (!readers.hasNext()) {
                throw new IllegalArgumentException("this is no picture in a known format");
            }
            ImageReader reader = readers.next();
            try {
                reader.setInput(stream);
                long pixels = (long) reader.getWidth(0) * reader.getHeight(0);
                if (pixels > MOST_PIXELS) {
                    throw new IllegalArgumentException(String.format(
                            "the picture has %,d pixels, and %,d are the most that are decoded", pixels, MOST_PIXELS));
                }
                return reading.of(reader);
            } catch (IOException error) {
                throw new IllegalArgumentException("the picture cannot be decoded: " + error.getMessage(), error);
            } finally {
                reader.dispose();
            }
        }
    }
}

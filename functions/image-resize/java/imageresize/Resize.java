package imageresize;

import java.awt.Graphics2D;
import java.awt.RenderingHints;
import java.awt.image.BufferedImage;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.imageio.ImageIO;
import uncia.Envelope;
import uncia.Parameters;

/** Decodes a picture, resizes it and encodes the result. All it needs for that is loaded by its first invocation. */
public final class Resize {
    private static final byte[] SOURCE = Png.make();
    private static final int LEAST = 16;
    private static final int MOST = 1024;
    private static final double TOLERANCE = 3;

    public Map<String, Object> handle(Map<String, Object> event) throws IOException {
        Envelope envelope = new Envelope();
        Map<String, Object> given = Parameters.of(event);
        for (String name : given.keySet()) {
            if (!name.equals("width") && !name.equals("height")) {
                throw new IllegalArgumentException("unknown parameter '" + name + "'; allowed: width, height");
            }
        }
        int width = number(given, "width", 170);
        int height = number(given, "height", 280);
        long start = System.nanoTime();
        ImageIO.setUseCache(false);
        BufferedImage source = ImageIO.read(new ByteArrayInputStream(SOURCE));
        BufferedImage result = new BufferedImage(width, height, BufferedImage.TYPE_INT_ARGB);
        Graphics2D pen = result.createGraphics();
        pen.setRenderingHint(RenderingHints.KEY_INTERPOLATION, RenderingHints.VALUE_INTERPOLATION_BILINEAR);
        pen.drawImage(source, 0, 0, width, height, null);
        pen.dispose();
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        ImageIO.write(result, "png", bytes);
        String text = Base64.getEncoder().encodeToString(bytes.toByteArray());
        long end = System.nanoTime();
        boolean valid = text.startsWith("iVBORw0KGgo") && isAlike(source, result);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("width", result.getWidth());
        answer.put("height", result.getHeight());
        answer.put("bytes", bytes.size());
        answer.put("resize_ns", end - start);
        answer.put("parameters", Map.of("width", width, "height", height));
        return envelope.seal(answer, valid);
    }

    private static int number(Map<String, Object> given, String name, int otherwise) {
        Object value = given.getOrDefault(name, otherwise);
        if (!(value instanceof Number number) || number.doubleValue() != number.intValue()) {
            throw new IllegalArgumentException(name + ": '" + value + "' is not a whole number");
        }
        if (number.intValue() < LEAST || number.intValue() > MOST) {
            throw new IllegalArgumentException(name + ": " + value + " is not between " + LEAST + " and " + MOST);
        }
        return number.intValue();
    }

    /** Whether the mean of each channel is about the same. */
    private static boolean isAlike(BufferedImage source, BufferedImage result) {
        double[] expected = means(source);
        double[] actual = means(result);
        for (int channel = 0; channel < expected.length; channel++) {
            if (Math.abs(expected[channel] - actual[channel]) > TOLERANCE) {
                return false;
            }
        }
        return true;
    }

    private static double[] means(BufferedImage image) {
        int[] pixels = image.getRGB(0, 0, image.getWidth(), image.getHeight(), null, 0, image.getWidth());
        long[] sums = new long[3];
        for (int pixel : pixels) {
            for (int channel = 0; channel < sums.length; channel++) {
                sums[channel] += pixel >> 8 * channel & 255;
            }
        }
        double[] means = new double[sums.length];
        for (int channel = 0; channel < sums.length; channel++) {
            means[channel] = (double) sums[channel] / pixels.length;
        }
        return means;
    }
}

package images;

import com.google.gson.JsonObject;
import java.math.BigDecimal;
import java.util.Random;

/**
 * Where a photograph was taken: degrees, minutes and hundredths of seconds of latitude and longitude.
 *
 * @param decimal whether the photograph says so as degrees and decimal minutes, as some cameras do
 */
record Position(int[] latitude, char north, int[] longitude, char east, boolean decimal) {
    private static final int MINUTE = 60;
    private static final int HUNDREDTHS = 100;

    static Position of(Random random) {
        int[] latitude = {random.nextInt(90), random.nextInt(MINUTE), random.nextInt(MINUTE * HUNDREDTHS)};
        int[] longitude = {random.nextInt(180), random.nextInt(MINUTE), random.nextInt(MINUTE * HUNDREDTHS)};
        char north = random.nextBoolean() ? 'N' : 'S';
        char east = random.nextBoolean() ? 'E' : 'W';
        return new Position(latitude, north, longitude, east, random.nextBoolean());
    }

    /** The three rationals of an angle in EXIF: numerator and denominator of each. */
    int[][] rationals(int[] angle) {
        if (decimal) {
            int minutes = angle[1] * MINUTE * HUNDREDTHS + angle[2];
            return new int[][] {{angle[0], 1}, {minutes, MINUTE * HUNDREDTHS}, {0, 1}};
        }
        return new int[][] {{angle[0], 1}, {angle[1], 1}, {angle[2], HUNDREDTHS}};
    }

    JsonObject described() {
        JsonObject geo = new JsonObject();
        geo.add("latitude", angle(latitude[0], latitude[1], BigDecimal.valueOf(latitude[2], 2), north));
        geo.add("longitude", angle(longitude[0], longitude[1], BigDecimal.valueOf(longitude[2], 2), east));
        return geo;
    }

    /** An angle as it stands in documents. */
    static JsonObject angle(long degrees, long minutes, BigDecimal seconds, char direction) {
        JsonObject angle = new JsonObject();
        angle.addProperty("D", degrees);
        angle.addProperty("M", minutes);
        angle.addProperty("S", seconds.doubleValue());
        angle.addProperty("direction", String.valueOf(direction));
        return angle;
    }
}

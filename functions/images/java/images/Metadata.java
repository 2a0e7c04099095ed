package images;

import com.drew.imaging.ImageMetadataReader;
import com.drew.imaging.ImageProcessingException;
import com.drew.lang.Rational;
import com.drew.metadata.Directory;
import com.drew.metadata.Tag;
import com.drew.metadata.exif.ExifIFD0Directory;
import com.drew.metadata.exif.ExifSubIFDDirectory;
import com.drew.metadata.exif.GpsDirectory;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.RoundingMode;

/** What a photograph says of itself, as it stands there, and as people read it. */
final class Metadata {
    private static final BigDecimal SIXTY = BigDecimal.valueOf(60);
    // Of seconds: a thousandth of one is three centimetres.
    private static final int DIGITS = 3;
    // Enough that thirds of minutes are whole seconds again when they are rounded.
    private static final int INNER_DIGITS = 30;

    private Metadata() {}

    /** Adds all that the photograph says of itself, as text, and its position as three rationals each. */
    static void read(JsonObject found) throws IOException {
        byte[] bytes = Store.get(Store.photograph(found.get("name").getAsString()));
        com.drew.metadata.Metadata metadata;
        try {
            metadata = ImageMetadataReader.readMetadata(new ByteArrayInputStream(bytes));
        } catch (ImageProcessingException error) {
            throw new IllegalArgumentException("the photograph cannot be read: " + error.getMessage(), error);
        }
        JsonObject extracted = new JsonObject();
        for (Directory directory : metadata.getDirectories()) {
            for (Tag tag : directory.getTags()) {
                extracted.addProperty(directory.getName() + ": " + tag.getTagName(), tag.getDescription());
            }
        }
        Picture.Size size = Picture.size(bytes);
        JsonObject raw = new JsonObject();
        raw.addProperty("format", Picture.format(bytes));
        raw.addProperty("bytes", bytes.length);
        raw.addProperty("width", size.width());
        raw.addProperty("height", size.height());
        add(raw, "make", metadata.getFirstDirectoryOfType(ExifIFD0Directory.class), ExifIFD0Directory.TAG_MAKE);
        add(raw, "model", metadata.getFirstDirectoryOfType(ExifIFD0Directory.class), ExifIFD0Directory.TAG_MODEL);
        add(
                raw,
                "taken",
                metadata.getFirstDirectoryOfType(ExifSubIFDDirectory.class),
                ExifSubIFDDirectory.TAG_DATETIME_ORIGINAL);
        GpsDirectory gps = metadata.getFirstDirectoryOfType(GpsDirectory.class);
        add(raw, "latitude direction", gps, GpsDirectory.TAG_LATITUDE_REF);
        add(raw, "longitude direction", gps, GpsDirectory.TAG_LONGITUDE_REF);
        addRationals(raw, "latitude", gps, GpsDirectory.TAG_LATITUDE);
        addRationals(raw, "longitude", gps, GpsDirectory.TAG_LONGITUDE);
        found.addProperty("tags", extracted.size());
        found.add("raw", raw);
    }

    private static void add(JsonObject raw, String name, Directory directory, int tag) {
        if (directory != null && directory.getString(tag) != null) {
            raw.addProperty(name, directory.getString(tag).strip());
        }
    }

    private static void addRationals(JsonObject raw, String name, Directory directory, int tag) {
        Rational[] values = directory == null ? null : directory.getRationalArray(tag);
        if (values == null) {
            return;
        }
        JsonArray list = new JsonArray();
        for (Rational value : values) {
            list.add(value.getNumerator() + "/" + value.getDenominator());
        }
        raw.add(name, list);
    }

    /** Replaces what stood there by a record: the time, the position in degrees, minutes and seconds, and the size. */
    static void transform(JsonObject found) {
        JsonObject raw = found.remove("raw").getAsJsonObject();
        JsonObject record = new JsonObject();
        record.add("format", raw.get("format"));
        record.add("bytes", raw.get("bytes"));
        record.addProperty("dimensions", raw.get("width").getAsInt() + "x" + raw.get("height").getAsInt());
        record.add("make", raw.get("make"));
        record.add("model", raw.get("model"));
        record.addProperty("created", created(raw.get("taken")));
        JsonObject geo = null;
        if (raw.has("latitude") && raw.has("longitude")) {
            geo = new JsonObject();
            geo.add("latitude", angle("latitude", raw, 90, "NS"));
            geo.add("longitude", angle("longitude", raw, 180, "EW"));
        }
        record.add("geo", geo);
        found.add("record", record);
    }

    /** A time of EXIF, such as {@code 2020:10:19 12:34:56}, as ISO 8601 has it; null if there is none. */
    private static String created(JsonElement taken) {
        if (taken == null || !taken.getAsString().matches("\\d{4}:\\d\\d:\\d\\d \\d\\d:\\d\\d:\\d\\d")) {
            return null;
        }
        String text = taken.getAsString();
        return text.substring(0, 10).replace(':', '-') + "T" + text.substring(11);
    }

    private static JsonObject angle(String name, JsonObject raw, int most, String directions) {
        JsonArray parts = raw.getAsJsonArray(name);
        String direction = raw.has(name + " direction") ? raw.get(name + " direction").getAsString() : "";
        // One letter: also no letter at all is in every text.
        if (parts.size() != 3 || direction.length() != 1 || !directions.contains(direction)) {
            throw new IllegalArgumentException("the photograph's " + name + " is no angle with a direction");
        }
        // Each part may have a fraction, which belongs to the next.
        BigDecimal seconds = BigDecimal.ZERO;
        for (JsonElement part : parts) {
            String[] numbers = part.getAsString().split("/");
            if (Long.parseLong(numbers[1]) == 0) {
                throw new IllegalArgumentException("the photograph's " + name + " is divided by zero");
            }
            BigDecimal value = new BigDecimal(numbers[0])
                    .divide(new BigDecimal(numbers[1]), INNER_DIGITS, RoundingMode.HALF_EVEN);
            seconds = seconds.multiply(SIXTY).add(value);
        }
        seconds = seconds.setScale(DIGITS, RoundingMode.HALF_EVEN);
        long minutes = seconds.divideToIntegralValue(SIXTY).longValueExact();
        if (seconds.signum() < 0 || seconds.compareTo(BigDecimal.valueOf(most * 3600L)) > 0) {
            throw new IllegalArgumentException("the photograph's " + name + " is not between 0 and " + most + " degrees");
        }
        return Position.angle(minutes / 60, minutes % 60, seconds.remainder(SIXTY), direction.charAt(0));
    }
}

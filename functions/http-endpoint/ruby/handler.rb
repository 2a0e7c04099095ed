# Answers with the time of day.

require_relative "uncia_envelope"

# A time in UTC by the calendar's rules: eras of 400 years, which begin in March.
def written(unix_s)
  days, seconds = unix_s.divmod(86_400)
  era, day = (days + 719_468).divmod(146_097)
  year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365
  day -= 365 * year + year / 4 - year / 100
  month = (5 * day + 2) / 153
  day -= (153 * month + 2) / 5 - 1
  month += month < 10 ? 3 : -9
  year += 400 * era + (month <= 2 ? 1 : 0)
  format("%04d-%02d-%02d %02d:%02d:%02d", year, month, day, seconds / 3_600, seconds / 60 % 60, seconds % 60)
end

def handler(event:, context:)
  Uncia.enveloped do
    unix_s = Time.now.to_i
    text = Time.at(unix_s).utc.strftime("%Y-%m-%d %H:%M:%S")
    [{ text: text, unix_s: unix_s }, text == written(unix_s)]
  end
end

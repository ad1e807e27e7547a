#include "lib/text/jinja/strftime.h"

#include <cctype>
#include <chrono>
#include <ctime>

#include "lib/base/error.h"

namespace lumen::text {

CivilTime CivilTime::now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
          local.tm_hour,        local.tm_min,     local.tm_sec};
}

CivilTime CivilTime::parse(std::string_view text) {
  // "2025-07-10" and optionally "T12:00:00"; # is a digit.
  constexpr std::string_view kForm = "####-##-##T##:##:##";
  bool valid = text.size() == 10 || text.size() == kForm.size();
  for (size_t i = 0; valid && i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    valid = kForm[i] == '#' ? digit : text[i] == kForm[i] || (kForm[i] == 'T' && text[i] == ' ');
  }
  CivilTime time;
  const auto number = [&](size_t at, size_t size) {
    int64_t value = 0;
    if (at < text.size()) parse_number(text.substr(at, size), value);
    return static_cast<int>(value);
  };
  if (valid) {
    time = {number(0, 4), number(5, 2), number(8, 2), number(11, 2), number(14, 2), number(17, 2)};
    const auto date = std::chrono::year(time.year) /
                      std::chrono::month(static_cast<unsigned>(time.month)) /
                      std::chrono::day(static_cast<unsigned>(time.day));
    valid = date.ok() && time.hour < 24 && time.minute < 60 && time.second < 60;
  }
  if (!valid) {
    fail(ErrorKind::kUsage, lumen::quoted(text), " is not a time like 2025-07-10T12:00:00");
  }
  return time;
}

namespace jinja {

namespace {

constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};
constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};

std::string digits(int value, size_t width, char fill = '0') {
  std::string text = str(value);
  return text.size() < width ? std::string(width - text.size(), fill) + text : text;
}

class TimeWriter {
 public:
  explicit TimeWriter(const CivilTime& time) : t_(time) {
    using namespace std::chrono;
    const sys_days date{year(t_.year) / month(static_cast<unsigned>(t_.month)) /
                        day(static_cast<unsigned>(t_.day))};
    days_ = date.time_since_epoch().count();
    weekday_ = static_cast<int>(weekday(date).c_encoding());
    year_day_ = (date - sys_days{year(t_.year) / January / 1}).count();
  }

  // What `%directive` stands for; `flag` is '-', '_', '0', '^', '#' or 0.
  std::string write(char directive, char flag) const {
    std::string out = plain(directive, flag);
    if (flag == '^') {
      for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return out;
  }

 private:
  static std::string number(int value, size_t width, char flag, char fill = '0') {
    if (flag == '-') return str(value);
    return digits(value, width, flag == '_' ? ' ' : flag == '0' ? '0' : fill);
  }

  int hour12() const { return t_.hour % 12 == 0 ? 12 : t_.hour % 12; }
  std::string time() const { return write('H', 0) + ":" + write('M', 0) + ":" + write('S', 0); }

  // ISO 8601: the year and number of the week, which belongs to the year of its Thursday.
  std::pair<int, int> iso_week() const {
    using namespace std::chrono;
    const int monday_based = (weekday_ + 6) % 7;
    const sys_days thursday{days(days_ - monday_based + 3)};
    const year_month_day date(thursday);
    const int day_of_year = (thursday - sys_days{date.year() / January / 1}).count();
    return {int(date.year()), day_of_year / 7 + 1};
  }

  std::string plain(char directive, char flag) const {
    switch (directive) {
      case 'a':
        return std::string(kDays[weekday_].substr(0, 3));
      case 'A':
        return std::string(kDays[weekday_]);
      case 'b':
      case 'h':
        return std::string(kMonths[t_.month - 1].substr(0, 3));
      case 'B':
        return std::string(kMonths[t_.month - 1]);
      case 'c':
        return write('a', 0) + " " + write('b', 0) + " " + write('e', 0) + " " + time() + " " +
               write('Y', 0);
      case 'C':
        return number(t_.year / 100, 2, flag);
      case 'd':
        return number(t_.day, 2, flag);
      case 'D':
      case 'x':
        return write('m', 0) + "/" + write('d', 0) + "/" + write('y', 0);
      case 'e':
        return number(t_.day, 2, flag, ' ');
      case 'f':
        return "000000";
      case 'F':
        return write('Y', 0) + "-" + write('m', 0) + "-" + write('d', 0);
      case 'g':
        return number(iso_week().first % 100, 2, flag);
      case 'G':
        return str(iso_week().first);
      case 'H':
        return number(t_.hour, 2, flag);
      case 'I':
        return number(hour12(), 2, flag);
      case 'j':
        return number(year_day_ + 1, 3, flag);
      case 'k':
        return number(t_.hour, 2, flag, ' ');
      case 'l':
        return number(hour12(), 2, flag, ' ');
      case 'm':
        return number(t_.month, 2, flag);
      case 'M':
        return number(t_.minute, 2, flag);
      case 'n':
        return "\n";
      case 'p':
        return flag == '#' ? (t_.hour < 12 ? "am" : "pm") : (t_.hour < 12 ? "AM" : "PM");
      case 'P':
        return t_.hour < 12 ? "am" : "pm";
      case 'r':
        return write('I', 0) + ":" + write('M', 0) + ":" + write('S', 0) + " " + write('p', 0);
      case 'R':
        return write('H', 0) + ":" + write('M', 0);
      case 's':
        return str(days_ * int64_t{86400} + t_.hour * 3600 + t_.minute * 60 + t_.second);
      case 'S':
        return number(t_.second, 2, flag);
      case 't':
        return "\t";
      case 'T':
      case 'X':
        return time();
      case 'u':
        return str(weekday_ == 0 ? 7 : weekday_);
      case 'U':
        return number((year_day_ + 7 - weekday_) / 7, 2, flag);
      case 'V':
        return number(iso_week().second, 2, flag);
      case 'w':
        return str(weekday_);
      case 'W':
        return number((year_day_ + 7 - (weekday_ + 6) % 7) / 7, 2, flag);
      case 'y':
        return number(t_.year % 100, 2, flag);
      case 'Y':
        return str(t_.year);
      case 'z':
      case 'Z':
        return "";  // the time has no zone
      case '%':
        return "%";
      default:
        return std::string(flag ? "%" + std::string(1, flag) : "%") + directive;
    }
  }

  const CivilTime& t_;
  int64_t days_;  // since 1970-01-01
  int weekday_;   // 0: Sunday
  int year_day_;  // 0: January 1st
};

}  // namespace

std::string format_time(Heap& heap, std::string_view format, const CivilTime& time) {
  const TimeWriter writer(time);
  TextBuilder out(heap);
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.append(format[i]);
      continue;
    }
    char flag = 0;
    size_t at = i + 1;
    if (std::string_view("-_0^#").find(format[at]) != std::string_view::npos &&
        at + 1 < format.size()) {
      flag = format[at++];
    }
    out.append(writer.write(format[at], flag));
    i = at;
  }
  return out.take();
}

}  // namespace jinja
}  // namespace lumen::text

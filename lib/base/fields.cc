#include "lib/base/fields.h"

#include <algorithm>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen {
namespace {

// Whether they differ in the case of Latin letters at most.
bool are_same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

template <typename Number>
Field make_number_field(std::string name, std::string help, std::optional<Number>& variable,
                        Number min, Number max, const char* kind) {
  auto set = [name, &variable, min, max, kind](std::string_view text) {
    Number number{};
    if (!parse_number(text, number) || !(number >= min && number <= max)) {
      fail(ErrorKind::kUsage, name, ": ", quoted(text), " is not ", kind, " from ", min, " to ",
           max);
    }
    variable = number;
  };
  auto get = [&variable] { return variable ? str(*variable) : std::string(); };
  return {std::move(name), "N", std::move(help), std::move(set), std::move(get)};
}

}  // namespace

void require_utf8(std::string_view text, const std::string& name) {
  if (is_valid_utf8(text)) return;
  const std::string repaired = to_valid_utf8(text);
  const auto wrong =
      std::mismatch(text.begin(), text.end(), repaired.begin(), repaired.end()).first -
      text.begin();
  fail(ErrorKind::kUsage, name, ": byte ", wrong + 1, " is not UTF-8, at ",
       quoted(text.substr(static_cast<size_t>(wrong))));
}

Field number_field(std::string name, std::string help, std::optional<int64_t>& variable,
                   int64_t min, int64_t max) {
  return make_number_field(std::move(name), std::move(help), variable, min, max, "a whole number");
}

Field number_field(std::string name, std::string help, std::optional<double>& variable, double min,
                   double max) {
  return make_number_field(std::move(name), std::move(help), variable, min, max, "a number");
}

Field text_field(std::string name, std::string value, std::string help,
                 std::optional<std::string>& variable) {
  auto set = [name, &variable](std::string_view text) {
    require_utf8(text, name);
    variable = std::string(text);
  };
  auto get = [&variable] { return variable.value_or(""); };
  return {std::move(name), std::move(value), std::move(help), std::move(set), std::move(get)};
}

Field path_field(std::string name, std::string value, std::string help,
                 std::optional<std::string>& variable) {
  Field field = text_field(name, std::move(value), std::move(help), variable);
  field.set = [name, &variable](std::string_view text) {
    if (text.empty()) {
      fail(ErrorKind::kUsage, name, ": an empty name, perhaps of an unset variable");
    }
    variable = std::string(text);
  };
  return field;
}

Field list_field(std::string name, std::string value, std::string help,
                 std::vector<std::string>& variable) {
  auto set = [&variable](std::string_view text) { variable.emplace_back(text); };
  auto get = [&variable] { return join(variable, " "); };
  return {std::move(name), std::move(value), std::move(help), std::move(set), std::move(get), true};
}

Field choice_field(std::string name, std::string help, std::string& variable,
                   std::vector<std::string> choices) {
  std::string value = join(choices, "|");
  auto set = [name, &variable, choices = std::move(choices)](std::string_view text) {
    // In any case: quantised types are Q4_K_M to most who write about them.
    const auto chosen =
        std::find_if(choices.begin(), choices.end(),
                     [&](const std::string& choice) { return are_same_word(choice, text); });
    if (chosen == choices.end()) {
      fail(ErrorKind::kUsage, name, ": ", quoted(text), " is not one of ", join(choices, ", "));
    }
    variable = *chosen;
  };
  auto get = [&variable] { return variable; };
  return {std::move(name), std::move(value), std::move(help), std::move(set), std::move(get)};
}

Field switch_field(std::string name, std::string help, bool& variable) {
  auto set = [name, &variable](std::string_view text) {
    if (text != "true" && text != "false" && !text.empty()) {
      fail(ErrorKind::kUsage, name, ": ", quoted(text), " is neither true nor false");
    }
    variable = text != "false";
  };
  auto get = [&variable] { return str(variable); };
  return {std::move(name), "", std::move(help), std::move(set), std::move(get)};
}

const Field& find_field(const std::vector<Field>& fields, std::string_view name) {
  std::vector<std::string> names;
  for (const Field& field : fields) {
    if (field.name == name) return field;
    names.push_back(field.name);
  }
  const std::string near = nearest(name, names);
  fail(ErrorKind::kUsage, "no setting ", quoted(name),
       near.empty() ? str("; there are ", join(names, ", ")) : str("; did you mean ", near, "?"));
}

}  // namespace lumen

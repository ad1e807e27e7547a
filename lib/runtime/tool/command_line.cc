#include "lib/runtime/tool/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/runtime/tool/command_docs.h"
#include "lib/runtime/tool/foreign_options.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/training/progress.h"
#include "lib/runtime/version.h"

namespace lumen::runtime {
namespace {

constexpr const char* kGeneral = "General";
constexpr const char* kThreads = "LUMEN_THREADS";
constexpr const char* kOpenMpThreads = "OMP_NUM_THREADS";

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

// CLI11's message without its class names, with the nearest flag for an unknown one.
[[noreturn]] void fail_usage(const CLI::App& app, const CLI::ParseError& error) {
  std::string message = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
    const std::vector<std::string> unknown = app.remaining(true);
    const std::string word = unknown.empty() ? "" : unknown.front();
    std::vector<std::string> names;
    std::vector<const CLI::App*> apps = {&app};
    for (const CLI::App* verb : app.get_subcommands()) apps.push_back(verb);
    for (const CLI::App* level : apps) {
      for (const CLI::Option* option : level->get_options()) {
        for (const std::string& name : option->get_lnames()) {
          if ("--" + name != word) names.push_back("--" + name);  // of another verb
        }
      }
    }
    const bool is_flag = word.rfind("-", 0) == 0;
    const std::string flag = word.substr(0, word.find('='));
    const auto verbs = app.get_subcommands();
    const std::string hint = foreign_option_hint(verbs.empty() ? app : *verbs[0], flag);
    std::string near;
    if (hint.empty() && is_flag) near = nearest(flag, names);
    if (!is_flag && verbs.empty()) near = nearest(word, verb_names(app));
    const bool is_verb = !is_flag && verbs.empty() && !verb_names(app).empty();
    message = str(is_flag   ? "unknown option "
                  : is_verb ? "unknown verb "
                            : "unexpected argument ",
                  quoted(word), near.empty() ? "" : "; did you mean " + near + "?",
                  hint.empty() ? "" : "; " + hint);
    if (is_verb && near.empty()) message += "; there are " + join(verb_names(app), ", ");
  }
  fail(ErrorKind::kUsage, message, " (see ", app.get_name(), " --help)");
}

[[noreturn]] void fail_foreign(const CLI::App& app, const std::string& word,
                               const std::string& hint) {
  fail(ErrorKind::kUsage, "unknown option ", quoted(word), "; ", hint, " (see ", app.get_name(),
       " --help)");
}

// The number of threads as OpenMP's programs have it (OpenMP 5.2, 21.1.2): one for each level of
// nesting, of which the first counts. It was not meant for us, so that a bad one is no error.
void take_openmp_threads(const std::function<void(std::string_view)>& set) {
  const char* value = std::getenv(kOpenMpThreads);
  if (value == nullptr || *value == '\0') return;
  std::string_view first(value);
  first = first.substr(0, first.find(','));
  first.remove_prefix(std::min(first.find_first_not_of(' '), first.size()));
  first.remove_suffix(first.size() - (first.find_last_not_of(' ') + 1));
  try {
    set(first);
  } catch (const Error& error) {
    tell(str("warning: ", kOpenMpThreads, ": ", error.what(), "; it is ignored"));
  }
}

}  // namespace

void GivenOptions::require(unsigned tasks, std::string_view place) const {
  for (const auto& [option, own] : options_) {
    if ((own & tasks) == 0) fail(ErrorKind::kUsage, option, " has no effect ", place);
  }
}

CommandLine::CommandLine(std::string tool, std::string purpose)
    : app_(std::make_unique<CLI::App>(std::move(purpose), std::move(tool))), verb_(app_.get()) {
  app_->set_help_flag("-h,--help", "Show this help")->group(kGeneral);
  app_->add_flag("-V,--version", version_, "Show the version; with --json also SIMD and compiler")
      ->group(kGeneral);
  app_->add_flag("--limits", limits_, "Show the limits on input files")->group(kGeneral);
  app_->add_option("--generate", generate_, "man, bash, zsh or fish")->group("");
}

CommandLine::~CommandLine() = default;

std::function<void(std::string_view)> CommandLine::noting(
    std::string name, std::function<void(std::string_view)> set) const {
  if (given_ == nullptr) return set;
  return [name = std::move(name), set = std::move(set), given = given_,
          tasks = tasks_](std::string_view value) {
    given->note(name, tasks);
    set(value);
  };
}

CLI::Option* CommandLine::add_option(const Field& field, const std::string& short_name) {
  const auto set = noting("--" + field.name, field.set);
  const std::string flags = (short_name.empty() ? "" : "-" + short_name + ",") + "--" + field.name;
  const std::string help = capitalized(field.help);
  CLI::Option* option;
  if (field.value.empty()) {
    switches_.insert("--" + field.name);
    option = verb_->add_flag_function(
        flags, [set](int64_t count) { set(count > 0 ? "true" : "false"); }, help);
  } else {
    option = verb_->add_option(
        flags,
        [set](const CLI::results_t& values) {
          for (const std::string& value : values) set(value);
          return true;
        },
        help);
    option->type_name(field.value)->expected(1)->allow_extra_args(false);
    option->multi_option_policy(field.repeatable ? CLI::MultiOptionPolicy::TakeAll
                                                 : CLI::MultiOptionPolicy::TakeLast);
  }
  option->group(group_);
  return option;
}

void CommandLine::add_threads(const Field& field) {
  threads_.push_back({verb_, add_option(field, "t"), field.set});
}

// CLI11 would take a variable for a flag that was given: refuse it where the flag has no effect,
// and name the flag where the variable is wrong.
void CommandLine::read_environment() {
  for (const ThreadsOption& threads : threads_) {
    if (threads.option->count() > 0) continue;
    if (threads.verb != app_.get() && !threads.verb->parsed()) continue;
    const char* value = std::getenv(kThreads);
    if (value != nullptr && *value != '\0') {
      with_context(kThreads, [&] { threads.set(value); });
    } else {
      take_openmp_threads(threads.set);
    }
  }
}

void CommandLine::check_switch(std::string_view argument) const {
  const size_t equals = argument.find('=');
  if (equals == argument.npos || !switches_.contains(std::string(argument.substr(0, equals)))) {
    return;
  }
  const std::string_view value = argument.substr(equals + 1);
  if (value == "true" || value == "false") return;
  fail(ErrorKind::kUsage, argument.substr(0, equals), ": ", quoted(value),
       " is neither true nor false");
}

void CommandLine::add(const std::vector<Field>& fields) {
  for (const Field& field : fields) add(field);
}

void CommandLine::add_positional(const Field& field) {
  CLI::Option* option = verb_->add_option(
      upper(field.name),
      [set = noting(upper(field.name), field.set)](const CLI::results_t& values) {
        for (const std::string& value : values) set(value);
        return true;
      },
      field.help);
  option->type_name("")->group(group_)->allow_extra_args(field.repeatable);
  if (field.repeatable) option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void CommandLine::add_rest(const Field& field) {
  // CLI11 would take "[a, b]" apart: it only sees to it that there is something.
  auto set = [this, field](const CLI::results_t& values) {
    if (rest_.empty()) fail(ErrorKind::kUsage, "put -- before ", quoted(values.front()));
    for (const std::string& argument : rest_) field.set(argument);
    return true;
  };
  verb_->add_option(upper(field.name), std::move(set), field.help)
      ->type_name("")
      ->group(group_)
      ->allow_extra_args()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->required();
}

void CommandLine::begin_verb(const std::string& name, const std::string& purpose) {
  if (verb_ == app_.get()) {
    app_->add_flag("--json", *json_, "With --version or --limits: print one JSON object")
        ->group(kGeneral);
  }
  verb_ = app_->add_subcommand(name, purpose);
  verb_->set_help_flag("-h,--help", "Show this help")->group(kGeneral);
}

std::string CommandLine::verb() const {
  const auto verbs = app_->get_subcommands();
  return verbs.empty() ? "" : verbs[0]->get_name();
}

void CommandLine::add_json(std::string help, bool& json) {
  json_ = &json;
  add(switch_field("json", std::move(help), json));
}

void CommandLine::add_example(std::string command, std::string meaning) {
  examples_.emplace_back(std::move(command), std::move(meaning));
}

void CommandLine::add_variable(std::string name, std::string meaning) {
  variables_.emplace_back(std::move(name), std::move(meaning));
}

void CommandLine::add_document(std::string kind, std::string (*make)()) {
  documents_.emplace(std::move(kind), make);
}

std::optional<int> CommandLine::parse(int argc, const char* const* argv) {
  // CLI11 takes arguments in reverse, and for "--name=" would take the next one as the value.
  const auto end = argv + argc;
  const auto separator = std::find(argv, end, std::string_view("--"));
  rest_.assign(separator == end ? end : separator + 1, end);
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {
    std::string argument = argv[i];
    if (argv + i < separator && hides_short_option(argument)) {
      const std::string hint = foreign_option_hint(*app_, argument);
      if (!hint.empty()) fail_foreign(*app_, argument, hint);
    }
    if (argv + i < separator && argument.starts_with("--") &&
        argument.find('=') == argument.size() - 1) {
      arguments.emplace_back();
      argument.pop_back();
    }
    arguments.push_back(std::move(argument));
  }
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    const auto verbs = app_->get_subcommands();
    write_stdout(verbs.empty() ? help_text(*app_) : help_text(*verbs[0]));
    return 0;
  } catch (const CLI::ParseError& error) {
    fail_usage(*app_, error);
  } catch (const std::logic_error&) {  // std::stoll's, on the value of a switch
    for (auto argument = argv; argument < separator; ++argument) check_switch(*argument);
    throw;
  }
  if (version_) {
    write_stdout(*json_ ? version_json(app_->get_name()) : version_line(app_->get_name()));
  } else if (limits_) {
    write_stdout(*json_ ? limits_json(app_->get_name()) : limits_text());
  } else if (generate_ == "man") {
    for (const ThreadsOption& threads : threads_) threads.option->envname(kThreads);
    write_stdout(man_page(*app_, examples_, variables_));
  } else if (generate_ == "bash") {
    write_stdout(bash_completion(*app_));
  } else if (generate_ == "zsh") {
    write_stdout(zsh_completion(*app_));
  } else if (generate_ == "fish") {
    write_stdout(fish_completion(*app_));
  } else if (auto own = documents_.find(generate_); own != documents_.end()) {
    write_stdout(own->second());
  } else if (!generate_.empty()) {
    std::string kinds = "man, bash, zsh";
    for (const auto& document : documents_) kinds += ", " + document.first;
    fail(ErrorKind::kUsage, "--generate: ", quoted(generate_), " is not ", kinds, " or fish");
  } else if (own_json_) {
    fail(ErrorKind::kUsage, "--json before a verb has no effect without --version or --limits");
  } else if (verb_ != app_.get() && app_->get_subcommands().empty()) {
    fail(ErrorKind::kUsage, "name a verb (see ", app_->get_name(), " --help)");
  } else {
    read_environment();
    return std::nullopt;
  }
  return 0;
}

}  // namespace lumen::runtime

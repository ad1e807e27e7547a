// Command lines: fields become flags, and help, man page and completions come from them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/fields.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lumen::runtime {

// The most threads that a tool may be asked for.
inline constexpr int64_t kMaxThreads = 4096;

// The options that were given, with those of the tool's tasks (bits) that each matters to: one that
// would do nothing is refused.
class GivenOptions {
 public:
  void note(std::string option, unsigned tasks) { options_.emplace_back(std::move(option), tasks); }

  // Throws Error(kUsage) naming the first that matters to none of `tasks`; `place` ends the
  // sentence "--top-k has no effect …".
  void require(unsigned tasks, std::string_view place) const;

 private:
  std::vector<std::pair<std::string, unsigned>> options_;
};

// A tool's command line on top of CLI11. Every tool has --help, --version (with --json: details),
// --limits and, hidden, --generate. Options refer to the variables of their fields.
class CommandLine {
 public:
  // `purpose` is one sentence for --help and the man page.
  CommandLine(std::string tool, std::string purpose);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Starts a group of options: a heading in the help.
  void group(std::string heading) { group_ = std::move(heading); }

  // What is added from here on matters to `tasks`, and is noted in `given` when it is given.
  void matters_to(unsigned tasks, GivenOptions& given) { tasks_ = tasks, given_ = &given; }

  // Adds --NAME for `field`, and -SHORT if given. Of a flag given twice the last counts, unless it
  // collects.
  void add(const Field& field, const std::string& short_name = "") {
    add_option(field, short_name);
  }
  void add(const std::vector<Field>& fields);

  // Adds `field`, which is called threads, with -t. Where neither is given, LUMEN_THREADS counts,
  // and without that OMP_NUM_THREADS, if it is valid.
  void add_threads(const Field& field);

  // An optional argument without a flag, the last of them perhaps repeatable; `field.name` in
  // capitals names it.
  void add_positional(const Field& field);

  // The arguments after "--", of which there must be some; `field` collects them as they are.
  void add_rest(const Field& field);

  // A verb of the tool; what is added from here on belongs to it.
  void begin_verb(const std::string& name, const std::string& purpose);

  // The verb that was given, after parse(); "" for a tool without verbs.
  std::string verb() const;

  // Adds --json, which also says in what form --version answers.
  void add_json(std::string help, bool& json);

  // For the man page: a command and what it does.
  void add_example(std::string command, std::string meaning);

  // For the man page too: an environment variable that is no option's, and what it is for.
  void add_variable(std::string name, std::string meaning);

  // A document of the tool's own: what `--generate KIND` prints.
  void add_document(std::string kind, std::string (*make)());

  // Reads the arguments. Returns an exit code if that was all there is to do (--help and the
  // like, printed to standard output); otherwise the fields are set. Throws Error(kUsage).
  std::optional<int> parse(int argc, const char* const* argv);

 private:
  // `set` of an option, called `name` in messages, that is noted first.
  std::function<void(std::string_view)> noting(std::string name,
                                               std::function<void(std::string_view)> set) const;

  CLI::Option* add_option(const Field& field, const std::string& short_name);

  struct ThreadsOption {
    CLI::App* verb;
    CLI::Option* option;
    std::function<void(std::string_view)> set;
  };
  void read_environment();
  // Throws Error(kUsage) if `argument` is a switch with a value, "--NAME=VALUE", that is none.
  void check_switch(std::string_view argument) const;

  // CLI11 takes seconds to compile; only command_line.cc and command_docs.cc see it.
  std::unique_ptr<CLI::App> app_;
  CLI::App* verb_ = nullptr;
  std::string group_ = "Options";
  unsigned tasks_ = 0;
  GivenOptions* given_ = nullptr;
  std::vector<ThreadsOption> threads_;  // of each verb
  std::set<std::string> switches_;
  std::vector<std::pair<std::string, std::string>> examples_, variables_;
  std::map<std::string, std::string (*)()> documents_;
  bool version_ = false, limits_ = false, own_json_ = false;
  bool* json_ = &own_json_;
  std::string generate_;
  std::vector<std::string> rest_;  // what stood after "--"
};

}  // namespace lumen::runtime

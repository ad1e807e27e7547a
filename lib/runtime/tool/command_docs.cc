#include "lib/runtime/tool/command_docs.h"

#include <CLI/App.hpp>
#include <algorithm>
#include <cctype>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/runtime/version.h"

namespace lumen::runtime {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(separator));
    parts.emplace_back(part);
    text.remove_prefix(std::min(text.size(), part.size() + 1));
  }
  return parts;
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t pos = 0; (pos = text.find(from, pos)) != std::string::npos; pos += to.size()) {
    text.replace(pos, from.size(), to);
  }
  return text;
}

bool is_switch(const CLI::Option& option) {
  return option.get_expected_max() == 0;
}

std::vector<const CLI::Option*> visible_flags(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) {
    return option->nonpositional() && !option->get_group().empty();
  });
}

std::vector<const CLI::Option*> positionals(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

std::vector<const CLI::App*> verbs(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "-p", "--prompt".
std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> out;
  for (const std::string& name : option.get_snames()) out.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.push_back("--" + name);
  return out;
}

std::string value_name(const CLI::Option& option) {
  return is_switch(option) ? "" : option.get_type_name();
}

// For a line of help: of more choices than fit what they are choices of, "TYPE".
std::string short_value_name(const CLI::Option& option) {
  constexpr size_t kMost = 40;
  std::string name = value_name(option);
  if (name.size() <= kMost) return name;
  name = option.get_lnames().front();
  std::ranges::transform(name, name.begin(), [](char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

bool takes_path(const std::string& value) {
  return value.find("FILE") != std::string::npos || value == "PATH" || value == "DIR" ||
         value == "MODEL";
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() ? app.get_parent()->get_name() + " " + app.get_name() : app.get_name();
}

std::string synopsis(const CLI::App& app) {
  std::string out = full_name(app);
  if (!verbs(app).empty()) out += " VERB";
  out += " [OPTIONS]";
  for (const CLI::Option* option : positionals(app)) {
    const std::string name = option->get_name() + (option->get_allow_extra_args() ? "…" : "");
    out += option->get_required() ? " -- " + name : " [" + name + "]";
  }
  return out;
}

void append_padded(std::string& out, const std::string& text, size_t column) {
  const auto is_character = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
  const auto columns = static_cast<size_t>(std::count_if(text.begin(), text.end(), is_character));
  out += text;
  out.append(columns < column ? column - columns : 1, ' ');
}

// Breaks `text`, ASCII words that fit a line, at blanks; lines after the first are indented.
void append_wrapped(std::string& out, std::string_view text) {
  constexpr size_t kColumns = 100;
  constexpr std::string_view kIndent = "  ";
  for (size_t room = kColumns; text.size() > room; room = kColumns - kIndent.size()) {
    const size_t end = text.rfind(' ', room);
    LUMEN_CHECK(end != text.npos);
    out.append(text, 0, end).append("\n").append(kIndent);
    text.remove_prefix(end + 1);
  }
  out.append(text).append("\n");
}

// Its arguments and options.
void append_man_options(std::string& out, const CLI::App& app) {
  for (const CLI::Option* option : positionals(app)) {
    out +=
        ".TP\n.I " + option->get_name() + "\n" + roff(sentence(option->get_description())) + "\n";
  }
  for (const CLI::Option* option : visible_flags(app)) {
    out += ".TP\n.B " + roff(join(spellings(*option), ", "));
    if (!is_switch(*option)) out += " \\fI" + roff(value_name(*option)) + "\\fR";
    out += "\n" + roff(option->get_description()) + ".\n";
    if (!option->get_envname().empty()) {
      out += "Without it the environment variable " + option->get_envname() + " counts.\n";
    }
  }
}

// The codes of ErrorKind (base/error.h), success and signals.
constexpr const char* kExitCodes[][2] = {
    {"0", "done"},
    {"1", "a program that the tool ran failed"},
    {"2", "wrong command line"},
    {"3", "a requested check failed"},
    {"4", "a check could not decide"},
    {"65", "input malformed, truncated or over a limit (see --limits)"},
    {"66", "input missing, unreadable or not a regular file"},
    {"69", "a feature, format or architecture this build does not have"},
    {"70", "a bug in Lumen"},
    {"71", "out of memory or another resource"},
    {"73", "output cannot be created, or would replace an input"},
    {"74", "reading or writing failed"},
    {"75", "try again later"},
    {"76", "training diverged; the last good checkpoint is kept"},
    {"78", "two inputs do not belong together"},
    {"129, 130, 141, 143", "ended by a hangup, by Ctrl-C, by a closed pipe, by SIGTERM"},
};

// What every tool reads; what a flag stands for is told beside the flag.
constexpr std::pair<const char*, const char*> kVariables[] = {
    {"LUMEN_THREADS, OMP_NUM_THREADS",
     "the number of threads without --threads: LUMEN_THREADS, else the first number of "
     "OMP_NUM_THREADS, which is ignored with a warning where it is none, else the physical cores"},
    {"LUMEN_SIMD",
     "forces an instruction set: amx, avx512, avxvnni, avx2, sse4 or sse2; dotprod or neon on "
     "aarch64"},
    {"HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME",
     "where org/name is looked for: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, "
     "~/.cache/huggingface/hub"},
    {"NO_COLOR",
     "if not empty, thinking blocks at a terminal look like the rest; there is no colour"},
};

void append_variables(std::string& out, const Variables& variables) {
  for (const auto& [name, meaning] : variables) {
    out += ".TP\n.B " + name + "\n" + roff(sentence(meaning)) + "\n";
  }
}

std::string shell_quoted(const std::string& text) {
  return "'" + replace_all(text, "'", "'\\''") + "'";
}

std::string identifier(std::string name) {
  return "_" + replace_all(std::move(name), "-", "_");
}

// The tool's verbs, each with its options; a tool without verbs counts as its own.
std::vector<const CLI::App*> levels(const CLI::App& app) {
  std::vector<const CLI::App*> out = {&app};
  for (const CLI::App* verb : verbs(app)) out.push_back(verb);
  return out;
}

}  // namespace

std::string roff(std::string text) {
  text = replace_all(std::move(text), "\\", "\\e");
  text = replace_all(std::move(text), "-", "\\-");
  if (!text.empty() && (text[0] == '.' || text[0] == '\'')) text.insert(0, "\\&");
  return text;
}

std::string capitalized(std::string help) {
  if (help[0] >= 'a' && help[0] <= 'z') help[0] -= 'a' - 'A';
  return help;
}

std::string sentence(std::string help) {
  return capitalized(std::move(help)) + ".";
}

std::string help_text(const CLI::App& app) {
  constexpr size_t kColumn = 29;
  std::string out = "Usage: " + synopsis(app) + "\n" + app.get_description() + "\n";
  for (const CLI::Option* option : positionals(app)) {
    append_padded(out, "  " + option->get_name(), kColumn);
    out += option->get_description() + "\n";
  }
  for (const CLI::App* verb : verbs(app)) {
    append_padded(out, "  " + verb->get_name(), kColumn);
    out += verb->get_description() + "\n";
  }
  const auto flags = visible_flags(app);
  std::vector<std::string> groups;
  for (const CLI::Option* option : flags) {
    if (std::find(groups.begin(), groups.end(), option->get_group()) == groups.end()) {
      groups.push_back(option->get_group());
    }
  }
  std::rotate(groups.begin(), groups.begin() + 1, groups.end());  // the general ones last
  for (const std::string& group : groups) {
    if (group == kRareOptions) {
      std::vector<std::string> names;
      for (const CLI::Option* option : flags) {
        if (option->get_group() == group) names.push_back(spellings(*option).back());
      }
      append_wrapped(out, group + ": " + join(names, ", "));
      continue;
    }
    out += group + ":\n";
    for (const CLI::Option* option : flags) {
      if (option->get_group() != group) continue;
      std::string left = option->get_snames().empty() ? "      " : "  ";
      left += join(spellings(*option), ", ");
      if (!is_switch(*option)) left += " " + short_value_name(*option);
      append_padded(out, left, kColumn);
      out += option->get_description() + "\n";
    }
  }
  return out;
}

std::string man_page(const CLI::App& app, const Examples& examples, const Variables& variables) {
  const std::string name = app.get_name();
  std::string out = ".TH " + name + " 1 \"\" \"" + replace_all(version_line("Lumen"), "\n", "") +
                    "\"\n.SH NAME\n" + roff(name) + " \\- " + roff(app.get_description()) +
                    "\n.SH SYNOPSIS\n.B " + roff(synopsis(app)) + "\n.SH OPTIONS\n";
  append_man_options(out, app);
  for (const CLI::App* verb : verbs(app)) {
    out += ".SH \"VERB " + verb->get_name() + "\"\n.B " + roff(synopsis(*verb)) + "\n.PP\n" +
           roff(verb->get_description()) + "\n";
    append_man_options(out, *verb);
  }
  out += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes) {
    out += str(".TP\n.B ", code, "\n", roff(sentence(meaning)), "\n");
  }
  if (!examples.empty()) out += ".SH EXAMPLES\n";
  for (const auto& [command, meaning] : examples) {
    out += ".TP\n.B " + roff(command) + "\n" + roff(sentence(meaning)) + "\n";
  }
  out += ".SH ENVIRONMENT\n";
  append_variables(out, variables);
  append_variables(out, {std::begin(kVariables), std::end(kVariables)});
  return out;
}

std::string bash_completion(const CLI::App& app) {
  const std::string function = identifier(app.get_name());
  std::string words, cases;
  for (const CLI::App* level : levels(app)) {
    if (level != &app) words += level->get_name() + " ";
    for (const CLI::Option* option : visible_flags(*level)) {
      const auto names = spellings(*option);
      words += join(names, " ") + " ";
      const std::string value = value_name(*option);
      if (value.empty()) continue;
      std::string reply = "return";
      if (value.find('|') != std::string::npos) {
        reply = "COMPREPLY=($(compgen -W " + shell_quoted(join(split(value, '|'), " ")) +
                " -- \"$word\")); return";
      } else if (takes_path(value)) {
        reply = "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); return";
      }
      cases += "    " + join(names, "|") + ") " + reply + ";;\n";
    }
  }
  return "# bash completion for " + app.get_name() + "\n" + function +
         "() {\n  local word=${COMP_WORDS[COMP_CWORD]}\n  COMPREPLY=()\n"
         "  case ${COMP_WORDS[COMP_CWORD-1]} in\n" +
         cases + "  esac\n  if [[ $word == -* ]]; then\n    COMPREPLY=($(compgen -W " +
         shell_quoted(words) +
         " -- \"$word\"))\n  else\n    compopt -o filenames\n"
         "    COMPREPLY=($(compgen -f -- \"$word\"))\n  fi\n}\ncomplete -F " +
         function + " " + app.get_name() + "\n";
}

std::string zsh_completion(const CLI::App& app) {
  std::string arguments;
  for (const CLI::App* level : levels(app)) {
    for (const CLI::Option* option : visible_flags(*level)) {
      std::string help = option->get_description();
      for (const char* special : {"[", "]", ":"}) {
        help = replace_all(help, special, std::string("\\") + special);
      }
      const std::string value = value_name(*option);
      std::string action;
      if (value.find('|') != std::string::npos) {
        action = ":value:(" + join(split(value, '|'), " ") + ")";
      } else if (!value.empty()) {
        action = takes_path(value) ? ":file:_files" : ":value:";
      }
      for (const std::string& name : spellings(*option)) {
        arguments += " \\\n  " + shell_quoted("*" + name + "[" + help + "]" + action);
      }
    }
  }
  return "#compdef " + app.get_name() + "\n_arguments" + arguments + " \\\n  '*:file:_files'\n";
}

std::string fish_completion(const CLI::App& app) {
  std::string out = "# fish completion for " + app.get_name() + "\n";
  for (const CLI::App* level : levels(app)) {
    if (level != &app) {
      out += "complete -c " + app.get_name() + " -n __fish_use_subcommand -a " + level->get_name() +
             " -d " + shell_quoted(level->get_description()) + "\n";
    }
    for (const CLI::Option* option : visible_flags(*level)) {
      out += "complete -c " + app.get_name();
      for (const std::string& name : option->get_snames()) out += " -s " + name;
      for (const std::string& name : option->get_lnames()) out += " -l " + name;
      const std::string value = value_name(*option);
      if (value.find('|') != std::string::npos) {
        out += " -x -a " + shell_quoted(join(split(value, '|'), " "));
      } else if (!value.empty()) {
        out += takes_path(value) ? " -r" : " -x";
      }
      out += " -d " + shell_quoted(option->get_description()) + "\n";
    }
  }
  return out;
}

}  // namespace lumen::runtime

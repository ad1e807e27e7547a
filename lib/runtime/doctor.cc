#include "lib/runtime/doctor.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/runtime/generation/session.h"
#include "lib/runtime/tool/available_memory.h"
#include "lib/runtime/tool/environment.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/report.h"

namespace lumen::runtime {
namespace {

using Status = Finding::Status;

constexpr uint64_t kLittleMemory = uint64_t{1} << 30;
// The fallbacks (simd.h).
constexpr std::string_view kSlowTargets[] = {"scalar", "sse2"};

std::string_view name(Status status) {
  constexpr std::string_view kNames[] = {"ok", "warning", "problem"};
  return kNames[static_cast<size_t>(status)];
}

// The choice in brackets: "always [madvise] never".
std::string chosen_of(const std::string& choices) {
  const size_t begin = choices.find('['), end = choices.find(']');
  if (begin == choices.npos || end == choices.npos || end < begin) return "";
  return choices.substr(begin + 1, end - begin - 1);
}

// CPUs' worth of time that "MAX PERIOD" allows; 0: no limit.
double cpu_quota(const std::string& text) {
  double most = 0, period = 0;
  const size_t space = text.find(' ');
  if (space == text.npos || !parse_number(text.substr(0, space), most) ||
      !parse_number(text.substr(space + 1), period) || period <= 0) {
    return 0;
  }
  return most / period;
}

Finding examine_simd(const io::Json& simd) {
  std::vector<std::string> supported = simd["supported"], compiled = simd["compiled"];
  const std::string chosen = simd["chosen"];
  const std::string text =
      str(chosen, " (this CPU: ", join(supported, ", "), "; compiled: ", join(compiled, ", "), ")");
  if (std::ranges::find(kSlowTargets, chosen) != std::end(kSlowTargets)) {
    return {"simd", Status::kWarning, text + ": slow; see LUMEN_SIMD"};
  }
  if (!supported.empty() && chosen != supported.front()) {
    return {"simd", Status::kWarning,
            str(text, ": not the first of what this CPU has; see LUMEN_SIMD")};
  }
  return {"simd", Status::kGood, text};
}

Finding examine_threads(const io::Json& environment) {
  const int64_t threads = environment["default_threads"], cpus = environment["logical_cpus"];
  std::string text = str(threads, " by default, of ", cpus, " logical CPUs");
  const double quota = cpu_quota(environment["cgroup_cpu_max"]);
  if (quota > 0) text += str("; the control group allows ", fixed(quota, 2), " CPUs");
  if (quota > 0 && quota < static_cast<double>(threads)) {
    return {"threads", Status::kWarning, text + ": threads wait for it"};
  }
  return {"threads", Status::kGood, text};
}

Finding examine_memory(const MachineFacts& facts) {
  const uint64_t all = facts.environment["memory_bytes"];
  std::string text = str(human_bytes(facts.available_bytes), " available of ", human_bytes(all));
  if (facts.group_bytes < all) {
    text += str("; the control group leaves ", human_bytes(facts.group_bytes));
  }
  if (facts.available_bytes >= kLittleMemory) return {"memory", Status::kGood, text};
  return {"memory", Status::kWarning, text + ": only small models fit"};
}

Finding examine_huge_pages(const io::Json& environment) {
  const std::string chosen = chosen_of(environment["transparent_huge_pages"]);
  if (chosen.empty()) return {"huge pages", Status::kWarning, "not known to this kernel: slower"};
  if (chosen == "never") {
    return {"huge pages", Status::kWarning,
            "never: slower; 'madvise' in /sys/kernel/mm/transparent_hugepage/enabled helps"};
  }
  return {"huge pages", Status::kGood, chosen};
}

Finding examine_load(const io::Json& environment) {
  const double load = environment["load_average"];
  const std::string text = str("load average ", fixed(load, 2));
  const auto threads = environment["default_threads"].get<double>();
  if (load < threads / 2) return {"load", Status::kGood, text};
  return {"load", Status::kWarning, text + ": other processes take processor time"};
}

// What loading a model as `options` say shows.
std::vector<Finding> examine_model(const RunOptions& options) {
  std::vector<Finding> found;
  const auto attempt = [&](const char* topic, auto&& body) {
    try {
      body();
      return true;
    } catch (const Error& error) {
      found.push_back({topic, Status::kProblem, error.what()});
      return false;
    }
  };
  const bool opens = attempt("files", [&] {
    const io::ModelFiles files = open_language_model(*options.model);
    found.push_back({"files", Status::kGood,
                     str(io::name(files.format), ", ", human_bytes(files.file_bytes), ", ",
                         files.tensors.size(), " tensors")});
  });
  if (!opens) return found;
  attempt("model", [&] {
    RunOptions plain = options;
    plain.no_repack = true;  // it is only looked at
    const Session session = load_session(plain);
    const MemoryPlan& memory = session.model->memory();
    found.push_back(
        {"model", Status::kGood,
         str("loads, with a context of ", session.model->context(), " tokens: weights ",
             human_bytes(memory.weight_bytes), ", KV cache ", human_bytes(memory.kv_bytes))});
    for (const std::string& notice : session.notices) {
      found.push_back({"model", Status::kWarning, notice});
    }
    const bool has_template = session.format.chat_template().has_value();
    found.push_back({"chat template", has_template ? Status::kGood : Status::kWarning,
                     has_template ? "read" : "none: texts are continued"});
  });
  return found;
}

std::string to_text(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& finding : findings) {
    std::string line(name(finding.status));
    line.resize(9, ' ');
    line += finding.topic;
    line.resize(std::max<size_t>(line.size() + 1, 24), ' ');
    out += line + printable(finding.text, 1000) + "\n";
  }
  return out;
}

}  // namespace

std::vector<Finding> examine_machine(const MachineFacts& facts) {
  const io::Json& environment = facts.environment;
  const io::Json& build = environment["build"];
  std::vector<Finding> found;
  const std::string type = build["build_type"];
  found.push_back(
      {"lumen", type == "release" ? Status::kGood : Status::kWarning,
       str(build["version"].get<std::string>(), " (", build["commit"].get<std::string>(), "), ",
           type, " build", type == "release" ? "" : ": slower than a release build")});
  found.push_back(
      {"cpu", Status::kGood,
       str(environment["cpu"].get<std::string>(), ", ", environment["machine"].get<std::string>(),
           environment["virtualised"].get<bool>() ? ", virtualised" : "")});
  found.push_back(examine_simd(build["simd"]));
  found.push_back(examine_threads(environment));
  found.push_back(examine_memory(facts));
  found.push_back(examine_huge_pages(environment));
  if (const std::string governor = environment["governor"]; governor == "powersave") {
    found.push_back({"governor", Status::kWarning, "powersave: the clock may stay low"});
  }
  found.push_back(examine_load(environment));
  return found;
}

int run_doctor(const RunOptions& options) {
  const MachineFacts facts = {environment_description(), available_memory(),
                              left_by_control_groups("/proc/self/cgroup", "/sys/fs/cgroup")};
  std::vector<Finding> findings = examine_machine(facts);
  if (options.model) {
    for (Finding& finding : examine_model(options)) findings.push_back(std::move(finding));
  }
  const auto problem = std::ranges::find(findings, Status::kProblem, &Finding::status);
  const bool is_healthy = problem == findings.end();
  if (options.json) {
    io::Json list = io::Json::array();
    for (const Finding& finding : findings) {
      list.push_back(io::Json{{"topic", finding.topic},
                              {"status", std::string(name(finding.status))},
                              {"text", to_valid_utf8(finding.text)}});
    }
    write_stdout(io::Json{{"schema", 1},
                          {"healthy", is_healthy},
                          {"available_bytes", facts.available_bytes},
                          {"findings", std::move(list)},
                          {"environment", facts.environment}}
                     .dump(2) +
                 "\n");
  } else {
    write_stdout(to_text(findings));
  }
  if (is_healthy) return 0;
  fail(ErrorKind::kCheckFailed, problem->topic, ": ", problem->text);
}

}  // namespace lumen::runtime

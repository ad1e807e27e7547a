#include "lib/runtime/bench/bench_llm.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/random.h"
#include "lib/base/strings.h"
#include "lib/io/hf_cache.h"
#include "lib/runtime/bench/bench_report.h"
#include "lib/runtime/builtin_model.h"
#include "lib/runtime/generation/session.h"
#include "lib/runtime/tool/environment.h"
#include "lib/runtime/tool/machine_limits.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/statistics.h"

namespace lumen::runtime {
namespace {

constexpr int64_t kMaxBatch = 256;

// One figure: how fast `tokens` tokens were read ("pp") or generated ("tg") with `depth` before, in
// `batch` texts at once.
struct Row {
  std::string test;
  int64_t threads, depth, batch;
  std::vector<double> tokens_per_second;
  double bytes_per_token = 0;  // of weights and KV cache read for a generated token; else 0
  io::Json profile = {};       // null: none is wanted
};

struct Loading {
  int64_t threads;
  double load_seconds, first_token_seconds;
};

// Tokens that no cache of a lower level has seen: random ids, the same in every run.
std::vector<int32_t> random_tokens(int64_t count, int64_t vocab) {
  Philox random(42);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab)));
  return ids;
}

// Takes slots [0, batch) back to `depth` positions; a recurrent model reads them again.
void rewind(LanguageModel& model, int64_t depth, int64_t batch) {
  for (int64_t slot = 0; slot < batch; ++slot) {
    model.select(slot);
    model.rewind(depth);
    if (model.position() < depth) model.feed(random_tokens(depth, model.vocab()));
  }
}

// Seconds to read `tokens`, for the profiler one step, when `depth` positions are already filled.
double time_prompt(LanguageModel& model, int64_t depth, int64_t, const std::vector<int32_t>& tokens,
                   Profiler* profiler) {
  rewind(model, depth, 1);
  const auto start = Clock::now();
  run_step(profiler, [&] { model.feed(tokens); });
  return seconds_since(start);
}

// Seconds to decode each of `tokens` alone, as if it had just been sampled, in `batch` texts; each
// is a step for the profiler.
double time_generation(LanguageModel& model, int64_t depth, int64_t batch,
                       const std::vector<int32_t>& tokens, Profiler* profiler) {
  rewind(model, depth, batch);
  std::vector<int32_t> slots(static_cast<size_t>(batch)), step(slots.size());
  std::iota(slots.begin(), slots.end(), 0);
  const auto start = Clock::now();
  for (const int32_t token : tokens) {
    std::fill(step.begin(), step.end(), token);
    run_step(profiler, [&] { model.step(slots, step); });
  }
  return seconds_since(start);
}

constexpr const char* kGenerating = "tg";

void measure(LanguageModel& model, const BenchOptions& options, Profiles& profiles,
             std::vector<Row>& rows) {
  const int64_t context = model.context(), threads = model.pool().threads();
  const int64_t repetitions = options.repetitions.value_or(5);
  for (const int64_t depth : parse_list(options.depth, "depth", 0, context - 1)) {
    for (int64_t slot = 0; depth > 0 && slot < model.slots(); ++slot) {
      model.select(slot);
      model.rewind(0);
      model.feed(random_tokens(depth, model.vocab()));
    }
    const MemoryPlan& memory = model.memory();
    const double position_bytes =
        static_cast<double>(memory.kv_bytes) / static_cast<double>(context * model.slots());
    // Of one of `batch` texts: all share one pass over the weights, each reads its own positions.
    auto generated_bytes = [&](int64_t count, int64_t batch) {
      const double seen = static_cast<double>(depth) + static_cast<double>(count) / 2;
      return static_cast<double>(memory.read_bytes) / static_cast<double>(batch) +
             position_bytes * seen;
    };
    auto add = [&](const char* kind, int64_t count, int64_t batch, auto time) {
      if (count == 0) return;
      const auto tokens = random_tokens(count, model.vocab());
      Row row{str(kind, count), threads, depth, batch, {}};
      time(model, depth, batch, tokens, nullptr);  // warm-up
      for (int64_t i = 0; i < repetitions; ++i) {
        const double seconds = time(model, depth, batch, tokens, nullptr);
        row.tokens_per_second.push_back(static_cast<double>(count * batch) / seconds);
      }
      // The weights are repacked by now.
      if (kind == kGenerating) row.bytes_per_token = generated_bytes(count, batch);
      if (profiles.wanted()) {
        const char* unit = kind != kGenerating ? "prompt" : batch == 1 ? "token" : "pass";
        row.profile = profiles.measure(
            str(row.test, ", threads ", threads, ", depth ", depth, ", batch ", batch), unit,
            row.tokens_per_second.size(),
            [&](Profiler& profiler) { time(model, depth, batch, tokens, &profiler); });
      }
      rows.push_back(std::move(row));
    };
    for (const int64_t count :
         parse_list(options.prompt_tokens, "prompt-tokens", 0, context - depth)) {
      add("pp", count, 1, time_prompt);
    }
    for (const int64_t count :
         parse_list(options.generated_tokens, "generated-tokens", 0, context - depth)) {
      for (const int64_t batch : parse_list(options.batch, "batch", 1, kMaxBatch)) {
        add(kGenerating, count, batch, time_generation);
      }
    }
  }
}

int64_t largest(const std::string& list, const std::string& option, int64_t min = 0,
                int64_t max = limits::kContext) {
  const auto values = parse_list(list, option, min, max);
  return *std::max_element(values.begin(), values.end());
}

io::Json to_json(const BenchOptions& options, const io::ModelFiles& files,
                 const std::vector<Loading>& loadings, const std::vector<Row>& rows,
                 const std::map<int64_t, double>& bandwidths, uint64_t peak_memory) {
  io::Json results = io::Json::array(), loads = io::Json::array();
  for (const Row& row : rows) {
    const Spread s = spread(row.tokens_per_second);
    results.push_back(io::Json{{"test", row.test},
                               {"threads", row.threads},
                               {"depth", row.depth},
                               {"batch", row.batch},
                               {"unit", "tokens/s"},
                               {"median", s.median},
                               {"min", s.min},
                               {"max", s.max},
                               {"samples", row.tokens_per_second}});
    if (row.bytes_per_token > 0) {
      results.back()["bytes_per_token"] = row.bytes_per_token;
      results.back()["bandwidth_fraction"] =
          row.bytes_per_token * s.median / bandwidths.at(row.threads);
    }
    if (!row.profile.is_null()) results.back()[kProfileMember] = row.profile;
  }
  for (const Loading& load : loadings) {
    loads.push_back(io::Json{{"threads", load.threads},
                             {"load_ms", load.load_seconds * 1000},
                             {"first_token_ms", load.first_token_seconds * 1000},
                             {"read_bandwidth", bandwidths.at(load.threads)}});
  }
  return {{"schema", 1},
          {"benchmark", "llm"},
          {"model",
           {{"name", to_valid_utf8(options.model.value_or("built-in"))},
            {"format", std::string(name(files.format))},
            {"model_type", files.config["model_type"]},
            {"bytes", files.file_bytes}}},
          {"settings", {{"kv", options.kv}, {"repack", !options.no_repack}}},
          {"results", std::move(results)},
          {"loading", std::move(loads)},
          {"peak_memory_bytes", peak_memory},
          {"environment", environment_description()}};
}

std::string to_markdown(const io::Json& report) {
  std::string out =
      "| model | threads | depth | batch | test | tokens/s (median) | min | max | of bandwidth |\n"
      "|---|--:|--:|--:|---|--:|--:|--:|--:|\n";
  const std::string model = report["model"]["name"].get<std::string>();
  const std::string shown = table_cell(printable(last_name(model)));
  const auto share = [](const io::Json& row) -> std::string {
    if (!row.contains("bandwidth_fraction")) return "";
    const double fraction = row["bandwidth_fraction"].get<double>();
    return fraction > 1 ? "from a cache" : fixed(100 * fraction, 0) + " %";
  };
  for (const io::Json& row : report["results"]) {
    out +=
        str("| ", shown, " | ", row["threads"].get<int64_t>(), " | ", row["depth"].get<int64_t>(),
            " | ", row["batch"].get<int64_t>(), " | ", row["test"].get<std::string>(), " | ",
            fixed(row["median"].get<double>(), 2), " | ", fixed(row["min"].get<double>(), 2), " | ",
            fixed(row["max"].get<double>(), 2), " | ", share(row), " |\n");
  }
  out += "\n";
  for (const io::Json& load : report["loading"]) {
    const auto threads = load["threads"].get<int64_t>();
    out += str("- ", threads, threads == 1 ? " thread" : " threads", ": loaded in ",
               fixed(load["load_ms"].get<double>(), 1), " ms, first token after ",
               fixed(load["first_token_ms"].get<double>(), 1), " ms; read bandwidth (2 MiB pages) ",
               fixed(load["read_bandwidth"].get<double>() / 1e9, 1), " GB/s\n");
  }
  const io::Json& environment = report["environment"];
  out += str("- peak memory ", human_bytes(report["peak_memory_bytes"].get<uint64_t>()), "\n- ",
             environment["cpu"].get<std::string>(), ", SIMD ",
             environment["build"]["simd"]["chosen"].get<std::string>(), ", ",
             environment["build"]["compiler"].get<std::string>(), ", Lumen ",
             environment["build"]["commit"].get<std::string>(), "\n");
  return out + profile_tables(report);
}

}  // namespace

std::vector<int64_t> parse_list(const std::string& text, const std::string& option, int64_t min,
                                int64_t max) {
  std::vector<int64_t> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::optional<int64_t> value;
    number_field(option, "", value, min, max).set(text.substr(begin, end - begin));
    values.push_back(*value);
    begin = end + 1;
  }
  return values;
}

Field number_list_field(std::string name, std::string help, std::string& variable, int64_t min,
                        int64_t max) {
  auto set = [name, &variable, min, max](std::string_view text) {
    if (text.empty()) fail(ErrorKind::kUsage, name, ": an empty list");
    parse_list(std::string(text), name, min, max);
    variable = text;
  };
  auto get = [&variable] { return variable; };
  return {std::move(name), "N,…", std::move(help), std::move(set), std::move(get)};
}

void declare(CommandLine& line, BenchOptions& options) {
  line.begin_verb("llm", "Measure how fast a language model reads prompts and generates.");
  line.add_positional(path_field("model", "MODEL",
                                 "GGUF file, Hugging Face directory or org/name, llama2.c .bin "
                                 "(built-in)",
                                 options.model));
  line.group("Measure");
  line.add(number_list_field("prompt-tokens", "lengths of prompts to read; 0: none (512)",
                             options.prompt_tokens, 0, limits::kContext),
           "p");
  line.add(number_list_field("generated-tokens", "numbers of tokens to generate; 0: none (128)",
                             options.generated_tokens, 0, limits::kContext),
           "n");
  line.add(number_list_field("depth", "tokens already in the KV cache (0)", options.depth, 0,
                             limits::kContext),
           "d");
  line.add(number_list_field("batch", "texts that are generated at once (1)", options.batch, 1,
                             kMaxBatch),
           "b");
  line.add_threads(number_list_field("threads", "numbers of threads (physical cores)",
                                     options.threads, 1, kMaxThreads));
  line.add(number_field("repetitions", "samples of each, after a warm-up (5)", options.repetitions,
                        1, 10'000),
           "r");
  line.add(choice_field("kv", "type of the KV cache (f16)", options.kv, {"f16", "f32", "q8_0"}));
  line.add(switch_field("no-repack", "measure with the weights as they are in the file",
                        options.no_repack));
  line.group("Profile");
  declare(line, options.profile);
  line.group("Output");
  declare(line, options.output);
  line.add_example("lumen-bench llm model.gguf -t 1,2", "compare one thread with two");
}

// Positions of the cache that the tests fill.
int64_t positions_needed(const BenchOptions& options) {
  return largest(options.depth, "depth") +
         std::max(largest(options.prompt_tokens, "prompt-tokens"),
                  largest(options.generated_tokens, "generated-tokens"));
}

// The options, with the lengths that were not given, as far as the model goes.
BenchOptions completed(BenchOptions options, const io::ModelFiles& files) {
  const int64_t most =
      io::get_int(files.config, "max_position_embeddings", 1, limits::kContext, limits::kContext);
  const int64_t depth = largest(options.depth, "depth");
  if (depth >= most) {
    fail(ErrorKind::kUsage, "--depth ", depth, ": the model has only ", most,
         " positions: give a smaller one");
  }
  const auto set = [&](std::string& list, int64_t usual) {
    if (list.empty()) list = str(std::min(usual, most - depth));
  };
  set(options.prompt_tokens, 512);
  set(options.generated_tokens, 128);
  if (largest(options.prompt_tokens, "prompt-tokens") == 0 &&
      largest(options.generated_tokens, "generated-tokens") == 0) {
    fail(ErrorKind::kUsage,
         "--prompt-tokens and --generated-tokens are 0: there is nothing to measure");
  }
  if (options.batch != "1" && largest(options.generated_tokens, "generated-tokens") == 0) {
    fail(ErrorKind::kUsage,
         "--batch has no effect with --generated-tokens 0: prompts are read singly");
  }
  if (const int64_t needed = positions_needed(options); needed > most) {
    fail(ErrorKind::kUsage, "depth and tokens are ", needed, ", the model has only ", most,
         " positions: give a smaller --prompt-tokens, --generated-tokens or --depth");
  }
  return options;
}

int bench_llm(const BenchOptions& given) {
  const std::vector<BenchTarget> targets = targets_of(given.output);
  Profiles profiles(given.profile);
  const std::string path = given.model ? *given.model : builtin_model_path();
  std::optional<io::ModelFiles> files = open_language_model(path);
  const BenchOptions options = completed(given, *files);
  std::vector<int64_t> threads = {default_thread_count()};
  if (!options.threads.empty()) threads = parse_list(options.threads, "threads", 1, kMaxThreads);

  std::vector<Row> rows;
  std::vector<Loading> loadings;
  for (const int64_t count : threads) {
    LoadOptions load;
    load.context = std::max<int64_t>(positions_needed(options), 1);
    load.slots = largest(options.batch, "batch", 1, kMaxBatch);
    load.kv_type = *dtype_named(options.kv);
    load.threads = static_cast<int>(count);
    load.repack = !options.no_repack;
    const auto start = Clock::now();
    files = open_language_model(path);
    const auto model = LanguageModel::load(*files, load);
    const double load_seconds = seconds_since(start);
    model->feed(random_tokens(1, model->vocab()));
    loadings.push_back({count, load_seconds, seconds_since(start)});
    model->repack();
    measure(*model, options, profiles, rows);
  }
  const uint64_t peak_memory = peak_memory_bytes();  // before that of measuring the memory
  std::map<int64_t, double> bandwidths;
  for (const int64_t count : threads) {
    ThreadPool pool(static_cast<int>(count));
    const ReadBandwidth measured = measure_read_bandwidth(pool);
    write_stderr(describe_shortage(measured));
    bandwidths[count] = measured.bytes_per_second;
  }
  for (const Row& row : rows) {
    const auto batch = static_cast<double>(row.batch);
    const double passes_per_second = spread(row.tokens_per_second).median / batch;
    double& bandwidth = bandwidths.at(row.threads);
    bandwidth = at_least_proven(bandwidth, row.bytes_per_token * batch, passes_per_second);
  }
  const io::Json report = to_json(options, *files, loadings, rows, bandwidths, peak_memory);
  print_targets(targets, [&](const std::string& form) {
    return report_text(report, form, [&] { return to_markdown(report); });
  });
  profiles.write_trace();
  return 0;
}

}  // namespace lumen::runtime

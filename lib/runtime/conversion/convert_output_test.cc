// lumen-convert: where its output may be, and what it says of it.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/file_lock.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_files.h"
#include "lib/io/write_gguf.h"
#include "lib/runtime/tool.h"
#include "lib/runtime/tool/output_directory.h"
#include "lib/runtime/tool/tool_process.h"
#include "lib/text/tokenizer.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;

TEST_CASE("an output that can be no file and no directory is refused before anything is read") {
  const std::string place = lumen::testing::temporary_directory();
  const auto error = [&](const std::string& output, int exit_code) {
    const auto outcome =
        testing::run_tool_process("lumen-convert", {testing::random_model(), output});
    testing::require_error(outcome, exit_code, "lumen-convert");
    return outcome.err;
  };
  CHECK(contains(error("-", 2), "cannot be written to standard output"));
  CHECK_FALSE(std::filesystem::exists("-"));
  CHECK(contains(error("/dev/null", 73), "'/dev/null' is a file; expected a directory"));
  CHECK(contains(error(place + "/none/a.gguf", 73), "there is no directory"));
  CHECK_FALSE(std::filesystem::exists(place + "/none"));
}

TEST_CASE("a directory appears whole, and replaces another one only if told to") {
  const std::string golden = lumen::testing::source_path("testdata/torch/sharded");
  const std::string place = lumen::testing::temporary_directory(), output = place + "/hf";
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {golden, output, "--type", "f32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return testing::run_tool_process("lumen-convert", arguments);
  };
  const auto dry = run({"--dry-run", "--shard-size", "1KB"});
  CHECK(dry.exit_code == 0);
  CHECK(contains(dry.out, "12 tensors: 12 in f32, 5 files\n"));
  const io::Json plan = io::Json::parse(run({"--dry-run", "--shard-size", "1KB", "--json"}).out);
  CHECK(plan["output"] == output);
  CHECK(plan["files"] == 5);
  CHECK(plan["types"] == io::Json({{"f32", 12}}));
  CHECK(run({"--json"}).exit_code == 2);
  CHECK_FALSE(io::is_directory(output));
  REQUIRE(run({"--shard-size", "1KB"}).exit_code == 0);
  std::set<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(output)) {
    names.insert(item.path().filename());
  }
  CHECK(names.size() == 7);  // five shards, their index, config.json; no lock, no temporary files
  const auto again = run({});
  CHECK(again.exit_code == 73);
  CHECK(contains(again.err, "--force replaces the model there"));
  CHECK(run({"--dry-run"}).exit_code == 73);  // as it would be
  CHECK(run({"--dry-run", "--force"}).exit_code == 0);
  io::write_file_atomically(output + "/notes.txt", "mine");
  REQUIRE(run({"--force"}).exit_code == 0);
  CHECK(io::is_regular_file(output + "/model.safetensors"));
  CHECK_FALSE(io::is_regular_file(output + "/model.safetensors.index.json"));
  CHECK(io::read_file(output + "/notes.txt", 10) == "mine");
  const std::string dangling = place + "/dangling";
  std::filesystem::create_symlink("none", dangling);
  struct Refusal {
    testing::Arguments arguments;
    int exit_code;
    const char* message;
  };
  for (const auto& [arguments, exit_code, message] : std::vector<Refusal>{
           {{golden, output, "--type", "q8_0", "--force"}, 2, "is for GGUF files"},
           {{golden, output, "--shard-size", "5", "--force"}, 2, "a size such as 5GB"},
           {{golden, place + "/a.safetensors"}, 2, "ends in .gguf, or a directory"},
           {{golden, place + "/a.GGUF"}, 2, "ends in .gguf, or a directory"},
           {{golden, place + "/a.gguf", "--shard-size", "-5GB"}, 2, "a size such as 5GB"},
           {{golden, place + "/a.gguf", "--shard-size", "99999999999999G"}, 2, "such as 5GB"},
           {{golden, place + "/no/such/hf"}, 73, "cannot be made: No such file or directory"},
           {{golden, dangling}, 73, "cannot be made: File exists"},
           {{output, output, "--force"}, 73, "is the model itself"}}) {
    const auto outcome = testing::run_tool_process("lumen-convert", arguments);
    CHECK(outcome.exit_code == exit_code);
    CHECK(contains(outcome.err, message));
  }
  CHECK(io::open_model(output).tensors.size() == 12);
}

TEST_CASE("a GGUF file comes in parts of a given size, all or none") {
  const std::string place = lumen::testing::temporary_directory(), output = place + "/m.gguf";
  const auto run = [&](const std::string& model, const testing::Arguments& more) {
    testing::Arguments arguments = {model, output, "--type", "f32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return testing::run_tool_process("lumen-convert", arguments);
  };
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& item : std::filesystem::directory_iterator(place)) {
      found.insert(item.path().filename());
    }
    return found;
  };
  const std::string model = testing::random_model();
  REQUIRE(run(model, {}).exit_code == 0);
  const io::ModelFiles whole = io::open_model(output);
  uint64_t bytes = 0, largest = 0;
  for (const auto& [name, array] : whole.tensors) {
    bytes += array.bytes();
    largest = std::max<uint64_t>(largest, array.bytes());
  }
  const std::string size = str(static_cast<double>(std::max(largest, bytes / 2)) / 1e3, "K");
  const auto dry = run(model, {"--dry-run", "--shard-size", size, "--force"});
  CHECK(dry.exit_code == 0);
  CHECK(contains(dry.out, " files\n"));
  CHECK(run(model, {"--shard-size", "1GB"}).exit_code == 73);  // one part is the file itself
  REQUIRE(run(model, {"--shard-size", size}).exit_code == 0);
  const auto found = names();
  const std::string count = str("0000", found.size() - 1);
  const std::string first = place + "/m-00001-of-" + count + ".gguf";
  REQUIRE(found.size() > 2);  // no lock, no temporary files
  for (size_t i = 1; i < found.size(); ++i) {
    CHECK(found.contains(str("m-0000", i, "-of-", count, ".gguf")));
  }
  const io::ModelFiles parts = io::open_model(first);
  REQUIRE(parts.tensors.size() == whole.tensors.size());
  for (const auto& [name, array] : whole.tensors) {
    const Array& same = parts.tensors.at(name);
    CHECK(std::equal(array.data(), array.data() + array.bytes(), same.data()));
  }
  using io::GgufType;
  const io::GgufMetadata& metadata = parts.gguf->metadata;
  CHECK(metadata.find("split.no")->type() == GgufType::kU16);
  CHECK(metadata.find("split.count")->type() == GgufType::kU16);
  CHECK(metadata.find("split.tensors.count")->type() == GgufType::kI32);

  const auto again = run(model, {"--shard-size", size});
  CHECK(again.exit_code == 73);
  CHECK(contains(again.err, str("m-00001-of-", count, ".gguf' exists; --force replaces it")));
  CHECK(run(model, {"--shard-size", size, "--force"}).exit_code == 0);
  const auto itself = run(first, {"--shard-size", size, "--force"});
  CHECK(itself.exit_code == 73);
  CHECK(contains(itself.err, "is the model itself"));
  // Of a conversion that was killed.
  const std::string left = str(place, "/.lumen-1-0.m-00001-of-", count, ".gguf.tmp");
  std::ofstream(left) << "part";
  REQUIRE(run(model, {"--shard-size", size, "--force"}).exit_code == 0);
  CHECK_FALSE(io::is_regular_file(left));
  CHECK(io::open_model(first).tensors.size() == whole.tensors.size());
}

TEST_CASE("a GGUF file that is copied, parted or joined keeps its types unless told otherwise") {
  const std::string place = lumen::testing::temporary_directory(), small = place + "/small.gguf";
  const auto run = [](const testing::Arguments& arguments) {
    return testing::run_tool_process("lumen-convert", arguments);
  };
  const auto check_same = [](const std::string& path, const std::string& other) {
    const auto a = io::read_gguf(path), b = io::read_gguf(other);
    REQUIRE(a->tensors.size() == b->tensors.size());
    for (const io::GgufTensor& tensor : a->tensors) {
      const Array x = a->array(tensor), y = b->array(*b->find_tensor(tensor.name));
      REQUIRE(x.dtype() == y.dtype());
      CHECK(std::equal(x.data(), x.data() + x.bytes(), y.data(), y.data() + y.bytes()));
    }
    constexpr const char* kType = "general.file_type";
    CHECK(a->metadata.get_int(kType, 0, 99) == b->metadata.get_int(kType, 0, 99));
  };
  for (const char* type : {"f32", "q8_0", "q4_k_m"}) {
    CAPTURE(type);
    REQUIRE(run({testing::random_model(), small, "--type", type, "--force"}).exit_code == 0);
    const auto parts = run({small, place + "/p.gguf", "--shard-size", "1TB"});
    REQUIRE(parts.exit_code == 0);
    check_same(small, place + "/p.gguf");
    std::filesystem::remove(place + "/p.gguf");
    REQUIRE(run({small, place + "/p.gguf", "--shard-size", "10KB"}).exit_code == 0);
    std::string first;
    for (const std::string& name : io::names_in(place)) {
      if (name.starts_with("p-00001-of-")) first = place + "/" + name;
    }
    REQUIRE(!first.empty());
    REQUIRE(run({first, place + "/joined.gguf", "--force"}).exit_code == 0);
    check_same(small, place + "/joined.gguf");
    for (const std::string& name : io::names_in(place)) {
      if (name.starts_with("p-")) std::filesystem::remove(place + "/" + name);
    }
  }
  for (const testing::Arguments& option :
       {testing::Arguments{"--allow-requantize"}, testing::Arguments{"--imatrix", small}}) {
    testing::Arguments arguments = {small, place + "/x.gguf"};
    arguments.insert(arguments.end(), option.begin(), option.end());
    const auto outcome = run(arguments);
    CHECK(outcome.exit_code != 0);
    CHECK(io::names_in(place) == std::vector<std::string>{"joined.gguf", "small.gguf"});
    if (option.size() == 1) CHECK(contains(outcome.err, "has no effect without --type"));
  }
}

// In a child, so that the signal ends that; returns its exit code.
int exit_code_of_tool(FunctionRef<void()> body) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int devnull = ::open("/dev/null", O_WRONLY);
    ::dup2(devnull, STDERR_FILENO);
    ::_exit(run_tool("lumen-convert", [&] {
      body();
      return 0;
    }));
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_CASE("a model that is cut short while it is read leaves no half of a conversion") {
  const std::string place = lumen::testing::temporary_directory(), model = place + "/model";
  const std::string bytes(1 << 20, 'x');
  for (const bool is_touched : {true, false}) {  // or only given to the system
    CAPTURE(is_touched);
    std::ofstream(model) << bytes;
    const int exit_code = exit_code_of_tool([&] {
      OutputDirectory output(place + "/hf", false);
      output.publish([&](const std::string& directory) {
        io::write_file_atomically(directory + "/model-00001-of-00002.safetensors", bytes);
        io::AtomicFile second(directory + "/model-00002-of-00002.safetensors");
        const auto file = io::map_file(model);
        std::filesystem::resize_file(model, 0);
        if (is_touched) {
          second.write(std::string(1, static_cast<char>(file->data[100])));
        } else {
          const std::string message = lumen::testing::refusal(ErrorKind::kIo, [&] {
            second.write(std::span<const std::byte>(file->data, file->bytes));
          });
          if (!contains(message, "was cut short or became unreadable")) ::_exit(1);
          fail(ErrorKind::kIo, message);
        }
      });
    });
    CHECK(exit_code == 74);
    CHECK(io::names_in(place) == std::vector<std::string>{"model"});
  }
}

TEST_CASE("an output whose lock cannot be written leaves nothing behind") {
  const std::string place = lumen::testing::temporary_directory();
  for (const std::string output : {"/hf", "/a.gguf"}) {
    CAPTURE(output);
    const int exit_code = exit_code_of_tool([&] {
      const rlimit none = {0, 0};
      ::setrlimit(RLIMIT_FSIZE, &none);
      if (output == "/hf") {
        OutputDirectory(place + output, false);
      } else {
        io::FileLock(place + "/.a.gguf.lock", "out", "", "").remove_at_end();
      }
    });
    CHECK(exit_code == 74);
    CHECK(io::names_in(place).empty());
  }
}

TEST_CASE("of two conversions into the same output the second is told to wait") {
  const std::string place = lumen::testing::temporary_directory();
  std::filesystem::create_directory(place + "/hf");
  for (const auto& [output, lock] :
       {std::pair("/a.gguf", "/.a.gguf.lock"), std::pair("/hf", "/hf/.lock")}) {
    const testing::Arguments arguments = {testing::random_model(), place + output, "--type", "f16"};
    {
      const io::FileLock held(place + lock, "", "", "");
      const auto outcome = testing::run_tool_process("lumen-convert", arguments);
      CHECK(outcome.exit_code == 75);
      CHECK(contains(outcome.err, "another conversion is writing here ('process"));
    }
    CHECK(testing::run_tool_process("lumen-convert", arguments).exit_code == 0);
    CHECK_FALSE(io::is_regular_file(place + lock));
  }
}

TEST_CASE("a model is not replaced by what is made of it, under no name") {
  const std::string place = lumen::testing::temporary_directory();
  const std::string model = place + "/a.gguf", alias = place + "/b.gguf";
  std::filesystem::copy_file(testing::random_model(), model);
  std::filesystem::create_hard_link(model, alias);
  const std::string before = io::read_file(model, 1 << 28);
  for (const std::string& output : {model, alias}) {
    const auto outcome =
        testing::run_tool_process("lumen-convert", {model, output, "--force", "--type", "Q8_0"});
    CHECK(outcome.exit_code == 73);
    CHECK(contains(outcome.err, "is the model itself"));
  }
  CHECK(io::read_file(model, 1 << 28) == before);
}

TEST_CASE("no part of a split model is replaced by what is made of it") {
  const std::string place = lumen::testing::temporary_directory();
  const std::string first = place + "/m-00001-of-00002.gguf",
                    second = place + "/m-00002-of-00002.gguf";
  const auto whole = io::read_gguf(testing::random_model());
  for (uint32_t part = 0; part < 2; ++part) {
    io::GgufWriter writer;
    for (size_t i = 0; part == 0 && i < whole->metadata.size(); ++i) {
      writer.copy(whole->metadata[i]);
    }
    writer.set("split.no", part);
    writer.set("split.count", uint32_t{2});
    for (size_t i = 0; i < whole->tensors.size(); ++i) {
      const io::GgufTensor& tensor = whole->tensors[i];
      if ((i > 4) == (part == 1)) writer.add(tensor.name, whole->array(tensor));
    }
    writer.write(part == 0 ? first : second);
  }
  const std::string before = io::read_file(second, 1 << 28);
  for (const std::string& output : {first, second}) {
    const auto outcome = testing::run_tool_process("lumen-convert", {first, output, "--force"});
    CHECK(outcome.exit_code == 73);
    CHECK(contains(outcome.err, "is the model itself"));
  }
  CHECK(io::read_file(second, 1 << 28) == before);
  const std::string joined = place + "/joined.gguf";
  CHECK(testing::run_tool_process("lumen-convert", {second, joined, "--type", "f32"}).exit_code ==
        0);
  CHECK(io::open_model(joined).tensors.size() == whole->tensors.size());
}

TEST_CASE("a chat template that is not UTF-8 ends a conversion where JSON would hold it") {
  const std::string place = lumen::testing::temporary_directory(), model = place + "/m.gguf";
  const auto whole = io::read_gguf(testing::random_model());
  for (const auto& [name, source] :
       {std::pair("tool_use", "\xFF"), std::pair("\xFF", "template"), std::pair("tool_use", "b")}) {
    io::GgufWriter writer;
    for (size_t i = 0; i < whole->metadata.size(); ++i) {
      const std::string_view key = whole->metadata[i].key();
      if (!key.starts_with("tokenizer.chat_template")) writer.copy(whole->metadata[i]);
    }
    writer.set("tokenizer.chat_template", std::string("{{ messages }}"));
    writer.set(str("tokenizer.chat_template.", name), std::string(source));
    for (const io::GgufTensor& tensor : whole->tensors) {
      writer.add(tensor.name, whole->array(tensor));
    }
    writer.write(model);
    const auto outcome = testing::run_tool_process("lumen-convert", {model, place + "/hf"});
    INFO(outcome.err);
    const bool is_valid = std::string_view(source) == "b";
    CHECK(outcome.exit_code == (is_valid ? 0 : 65));
    CHECK(io::is_directory(place + "/hf") == is_valid);
    if (!is_valid) CHECK(contains(outcome.err, "m.gguf: chat template "));
  }
}

TEST_CASE("a model of llama2.c becomes a directory, with the vocabulary that is named") {
  LUMEN_SHARED_DATA(root, "models");
  const std::string place = lumen::testing::temporary_directory(), output = place + "/hf";
  const std::string model = root + "/llama2c/stories260K/stories260K.bin",
                    tokenizer = root + "/llama2c/stories260K/tok512.bin";
  const auto run = [&](const std::vector<std::string>& arguments) {
    return testing::run_tool_process("lumen-convert", arguments);
  };
  const auto bare = run({model, output});
  CHECK(bare.exit_code == 2);
  CHECK(contains(bare.err, "has no tokenizer of its own; name one with --tokenizer tokenizer.bin"));
  const auto gguf = run({model, place + "/m.gguf", "--tokenizer", tokenizer});
  CHECK(gguf.exit_code == 69);
  CHECK(contains(gguf.err, "becomes a Hugging Face directory"));
  CHECK(run({root + "/hf/stories260K", output, "--tokenizer", tokenizer}).exit_code == 2);
  const std::string without = place + "/without";  // a directory without tokenizer files
  std::filesystem::create_directory(without);
  for (const char* file : {"/config.json", "/model.safetensors"}) {
    std::filesystem::copy_file(root + "/hf/stories260K" + file, without + file);
  }
  CHECK(contains(run({without, output, "--tokenizer", tokenizer}).err,
                 "put the tokenizer's files into '" + without + "' instead, which has none"));
  const auto other =
      run({model, output, "--tokenizer", root + "/llama2c/babyllama-tok105/tok105.model"});
  CHECK(other.exit_code == 78);
  CHECK(contains(other.err, "the tokenizer (sentencepiece) has 105 tokens, the model 512"));
  CHECK_FALSE(io::is_directory(output));
  REQUIRE(run({model, output, "--tokenizer", tokenizer, "--type", "f32"}).exit_code == 0);
  const auto original = io::open_model(root + "/hf/stories260K"), made = io::open_model(output);
  REQUIRE(made.tensors.size() == original.tensors.size());
  for (const auto& [name, array] : original.tensors) {
    const Array& same = made.tensors.at(name);
    REQUIRE(same.shape() == array.shape());
    CHECK(std::equal(array.data(), array.data() + array.bytes(), same.data()));
  }
  const auto from = text::load_tokenizer(tokenizer), copy = text::load_tokenizer(output);
  const std::string text = "Once upon a time, there was a  naïve 🙂.\n";
  CHECK(copy->encode(text) == from->encode(text));
  CHECK(copy->decode(from->encode(text), true) == text);
  CHECK(made.end_tokens.size() == 2);  // BOS separates texts
  REQUIRE(run({output, place + "/m.gguf"}).exit_code == 0);
}

}  // namespace
}  // namespace lumen::runtime

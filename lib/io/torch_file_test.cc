// PyTorch checkpoints: what torch.save wrote is read, and nothing else is.
#include "lib/io/torch_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_files.h"
#include "lib/io/pickle.h"
#include "lib/io/safetensors.h"
#include "lib/io/test_files.h"
#include "lib/io/zip.h"

namespace lumen::io {
namespace {

using testing::contains;

std::string golden(const std::string& name) {
  return testing::source_path("testdata/torch/" + name);
}

bool same_array(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.data(), a.data() + a.bytes(), b.data());
}

void check_same_arrays(const NamedArrays& got, const NamedArrays& want) {
  REQUIRE(got.size() == want.size());
  for (const auto& [name, array] : want) {
    CAPTURE(name);
    REQUIRE(got.contains(name));
    CHECK(same_array(got.at(name), array));
  }
}

// A pickle of `body` after the protocol, and what refuses it.
std::string pickle_refusal(const std::string& body, ErrorKind kind = ErrorKind::kMalformed) {
  constexpr std::string_view kGlobals[] = {"collections OrderedDict", "torch FloatStorage"};
  return testing::refusal(kind, [&] { Pickle("\x80\x02" + body, kGlobals); });
}

std::string text_opcode(const std::string& text) {
  std::string out = "X";
  append_raw<uint32_t>(out, static_cast<uint32_t>(text.size()));
  return out + text;
}

// {"a": a tensor} of a storage of float32 with `elements`, as torch.save would write it.
std::string tensor_pickle(const std::string& offset, const std::string& shape,
                          const std::string& strides, const std::string& elements = "K\x04") {
  return "\x80\x02}" + text_opcode("a") + "ctorch._utils\n_rebuild_tensor_v2\n((" +
         text_opcode("storage") + "ctorch\nFloatStorage\n" + text_opcode("0") + text_opcode("cpu") +
         elements + "tQ" + offset + "(" + shape + "t(" + strides + "t\x89" +
         "ccollections\nOrderedDict\n)RtRs.";
}

std::string checkpoint(const std::string& pickle, size_t bytes = 16) {
  return zip_file({{"t/data.pkl", pickle}, {"t/data/0", std::string(bytes, '\1')}});
}

std::string torch_refusal(const std::string& file, ErrorKind kind = ErrorKind::kMalformed) {
  return testing::refusal(kind, [&] { parse_torch(buffer_of(file), "t.pt")->arrays(); });
}

}  // namespace

TEST_CASE("checkpoints of PyTorch have the tensors that were saved") {
  const auto file = read_torch(golden("tensors.pth"));
  check_same_arrays(file->arrays(), read_safetensors(golden("tensors.safetensors"))->arrays());
  // What lies in rows is mapped, and what shared a storage still does.
  const NamedArrays tensors = file->arrays();
  CHECK(tensors.at("float32").buffer()->mapped);
  CHECK(tensors.at("slice").buffer()->mapped);
  CHECK(tensors.at("one").buffer()->mapped);
  CHECK_FALSE(tensors.at("permuted").buffer()->mapped);
  CHECK(tensors.at("tied").data() == tensors.at("parameter").data());
  CHECK(tensors.at("item").data() != tensors.at("slice").data());
  CHECK(file->file_bytes == std::filesystem::file_size(golden("tensors.pth")));
}

TEST_CASE("the state dict of a training checkpoint is its entry") {
  const NamedArrays tensors = read_tensors(golden("nested.pt"));
  REQUIRE(tensors.size() == 1);
  CHECK(same_array(tensors.at("weight"), read_tensors(golden("tensors.pth")).at("float32")));
  check_same_arrays(read_tensors(golden("tensors.safetensors")),
                    read_safetensors(golden("tensors.safetensors"))->arrays());
}

TEST_CASE("directories with PyTorch checkpoints open as those with safetensors") {
  const NamedArrays want = read_safetensors(golden("sharded.safetensors"))->arrays();
  check_same_arrays(open_model(golden("sharded")).tensors, want);

  const std::string directory = testing::temporary_directory() + "/model";
  std::filesystem::create_directory(directory);
  std::filesystem::copy(golden("sharded/config.json"), directory);
  const auto open_with = [&](const std::string& file, const std::string& bytes) {
    std::ofstream(directory + "/" + file, std::ios::binary) << bytes;
    const NamedArrays tensors = open_model(directory).tensors;
    std::filesystem::remove(directory + "/" + file);
    return tensors;
  };
  const std::string one = checkpoint(tensor_pickle("K\1", "K\3", "K\1"));
  for (const char* name : {"pytorch_model.bin", "weights.pth", "lit_model.pt"}) {
    const NamedArrays tensors = open_with(name, one);
    REQUIRE(tensors.size() == 1);
    CHECK(tensors.at("a").shape() == Shape{3});
  }
  // safetensors come first; two files with other names are ambiguous, and one can be named.
  std::filesystem::copy(golden("sharded.safetensors"), directory + "/model.safetensors");
  check_same_arrays(open_with("pytorch_model.bin", one), want);
  std::filesystem::remove(directory + "/model.safetensors");
  for (const char* name : {"/a.pth", "/b.pth"}) write_file_atomically(directory + name, one);
  CHECK(contains(testing::refusal(ErrorKind::kUnsupported, [&] { open_model(directory); }),
                 "has 2 PyTorch checkpoints and none that is called pytorch_model.bin"));
  CHECK(open_model(directory + "/b.pth").tensors.size() == 1);
  CHECK(open_model(directory + "/b.pth").path == directory + "/");  // where its tokenizer is
  std::filesystem::remove(directory + "/config.json");
  CHECK(contains(testing::refusal(ErrorKind::kMissing, [&] { open_model(directory + "/b.pth"); }),
                 "put the model's config.json beside it"));
}

TEST_CASE("shards of PyTorch hold what their index says") {
  const std::string directory = testing::temporary_directory() + "/model";
  std::filesystem::copy(golden("sharded"), directory);
  const std::string index = directory + "/pytorch_model.bin.index.json";
  Json json = read_json(index);
  json["weight_map"]["model.norm.weight"] = "pytorch_model-00001-of-00003.bin";
  write_file_atomically(index, json.dump());
  CHECK(contains(testing::refusal(ErrorKind::kMalformed, [&] { read_torch_index(index); }),
                 "'model.norm.weight' is mapped to"));
  std::filesystem::remove(directory + "/pytorch_model-00002-of-00003.bin");
  CHECK(contains(testing::refusal(ErrorKind::kMissing, [&] { read_torch_index(index); }),
                 "1 of 3 shards is missing: 'pytorch_model-00002-of-00003.bin'"));
}

TEST_CASE("what torch.save writes that Lumen has no use for is refused") {
  const auto refused = [](const std::string& name) {
    return testing::refusal(ErrorKind::kUnsupported,
                            [&] { read_torch(golden("refused-" + name + ".pt"))->arrays(); });
  };
  CHECK(contains(refused("expanded"), "is expanded: its 4 elements share 1"));
  CHECK(contains(refused("int16"), "lies in a ShortStorage"));
  CHECK(contains(refused("float8"), "refused: global torch._utils._rebuild_tensor_v3 at byte 13"));
  CHECK(contains(refused("conjugated"), "conjugated or negated"));
  CHECK(contains(refused("sparse"), "refused: global torch._utils._rebuild_sparse_tensor at byte"));
  CHECK(contains(refused("module"), "refused: global torch.nn.modules.linear.Linear at byte 2"));
  CHECK(contains(torch_refusal("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
                               ErrorKind::kUnsupported),
                 "torch.load(FILE, map_location=\"cpu\", weights_only=True)"));
}

TEST_CASE("a pickle is read as data and never executed") {
  CHECK(contains(pickle_refusal("cos\nsystem\n(X\2\0\0\0lstR."),
                 "refused: global os.system at byte 2; only tensors"));
  CHECK(contains(pickle_refusal("c__builtin__\neval\n."), "global __builtin__.eval at byte 2"));
  CHECK(contains(pickle_refusal("c\x1b[2J\nx\n."), "global \\x1b[2J.x at byte 2"));
  CHECK(contains(pickle_refusal("ctorch.hub\nload\n.", ErrorKind::kUnsupported), "torch.hub.load"));
  // INST, OBJ, NEWOBJ, STACK_GLOBAL, EXT1, a persistent id as text, and more that can make objects.
  for (const char opcode : {'i', 'o', '\x81', '\x93', '\x82', 'P', 'I', 'S', 'U', '\x95', '\x97'}) {
    CHECK(contains(pickle_refusal(std::string(1, opcode) + "os\nsystem\n."),
                   "which torch.save does not write"));
  }
  CHECK(contains(pickle_refusal("ccollections\nOrderedDict\n(NtR."), "OrderedDict with arguments"));
  CHECK(contains(pickle_refusal("NN)R."), "a call of something else than a global"));
  CHECK(contains(pickle_refusal("]Nb."), "sets attributes of something else"));
}

TEST_CASE("pickles that are broken are refused by their byte") {
  CHECK(pickle_refusal("}.") == "accepted");
  CHECK(pickle_refusal("]q\0h\0a.") != "accepted");                  // cut at the zero
  CHECK(pickle_refusal(std::string("]q\0h\0a.", 7)) == "accepted");  // a list in itself
  const std::pair<std::string, const char*> cases[] = {
      {"", "bytes needed"},
      {".", "ends with one value"},
      {"NN.", "ends with one value"},
      {"(N.", "ends with one value"},
      {"N.N", "1 bytes follow"},
      {"a.", "no value for this opcode"},
      {"N(\x85.", "no value for this opcode"},
      {"t.", "no mark"},
      {"Ne.", "no mark"},
      {"N(Ne.", "expected a list to add to"},
      {"}(Nu.", "a key without a value"},
      {"NNNs.", "expected a dictionary to add to"},
      {"h\1.", "memo, which is not set"},
      {"Nq\x09.", "memo, out of range"},
      {"Nr\xff\xff\xff\xff.", "memo, out of range"},
      {"X\xff\xff\xff\xff.", "bytes needed"},
      {std::string("X\1\0\0\0\xff.", 7), "not UTF-8"},
      {"\x8a\x09"
       "123456789.",
       "an integer of 9 bytes"},
      {"cos", "a name without an end"},
      {std::string(65, '('), "nested deeper than 64"},
  };
  for (const auto& [body, message] : cases) {
    CAPTURE(body);
    CHECK(contains(pickle_refusal(body), message));
  }
  CHECK(contains(testing::refusal(ErrorKind::kUnsupported, [] { Pickle("\x80\x04N.", {}); }),
                 "protocol 4"));
  // A byte can make a value, but not without end.
  for (const char opcode : {'N', ')', ']', '}'}) {
    CHECK(contains(pickle_refusal(std::string(5 << 20, opcode)), "byte"));
  }
}

TEST_CASE("integers of pickles have their sign") {
  const auto value = [](const std::string& body) {
    const Pickle pickle("\x80\x02" + body + ".", {});
    return pickle.integer(pickle.root());
  };
  CHECK(value("K\xff") == 255);
  CHECK(value("M\xff\xff") == 65535);
  CHECK(value("J\xff\xff\xff\xff") == -1);
  CHECK(value(std::string("\x8a\0", 2)) == 0);
  CHECK(value("\x8a\x01\xff") == -1);
  CHECK(value(std::string("\x8a\x05\0\0\0\0\1", 7)) == int64_t{1} << 32);
  CHECK(value(std::string("\x8a\x02\xff\0", 4)) == 255);
  CHECK(value("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff") == -1);
}

TEST_CASE("tensors stay inside their storage") {
  CHECK(torch_refusal(checkpoint(tensor_pickle(std::string("K\0", 2), "K\4", "K\1"))) ==
        "accepted");
  const std::string zero("K\0", 2);
  const auto refused = [&](const std::string& offset, const std::string& shape,
                           const std::string& strides, ErrorKind kind = ErrorKind::kMalformed) {
    return torch_refusal(checkpoint(tensor_pickle(offset, shape, strides)), kind);
  };
  CHECK(contains(refused("K\1", "K\4", "K\1"), "ends at element 3 of the 3"));
  CHECK(contains(refused("K\5", "K\1", "K\1"), "begins at element 5 of a storage of 4"));
  CHECK(contains(refused("J\xff\xff\xff\xff", "K\1", "K\1"), "its offset is -1"));
  CHECK(contains(refused(zero, "J\xff\xff\xff\xff", "K\1"), "an extent is -1"));
  CHECK(contains(refused(zero, "K\2", "J\xff\xff\xff\xff"), "a stride is -1"));
  CHECK(contains(refused(zero, "K\2K\2", "K\1"), "2 extents with 1 strides"));
  CHECK(contains(refused(zero, "N", "K\1"), "an extent is None"));
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  CHECK(contains(refused(zero, huge + huge, huge + huge), "64 bits"));
  CHECK(contains(refused(zero, "K\2" + huge, zero + zero), "nothing has the shape"));
  CHECK(contains(refused(zero, "K\2K\3", zero + "K\1", ErrorKind::kUnsupported), "is expanded"));
  CHECK(contains(torch_refusal(checkpoint(tensor_pickle(zero, "K\4", "K\1"), 15)),
                 "has 15 bytes, expected 16"));
  CHECK(contains(torch_refusal(checkpoint(tensor_pickle(zero, "K\4", "K\1", huge))), "64 bits"));
  CHECK(contains(torch_refusal(zip_file({{"t/data.pkl", tensor_pickle(zero, "K\4", "K\1")}})),
                 "its storage 't/data/0' is missing"));
  CHECK(contains(torch_refusal(checkpoint("\x80\x02]."), ErrorKind::kUnsupported),
                 "what was saved is a list"));
  CHECK(contains(
      torch_refusal(checkpoint("\x80\x02}" + text_opcode("a") + "K\1s."), ErrorKind::kUnsupported),
      "entry 'a' is an integer, not a tensor"));
  CHECK(contains(torch_refusal(zip_file({{"t/data.pkl", "\x80\x02}."}, {"t/byteorder", "big"}}),
                               ErrorKind::kUnsupported),
                 "little-endian"));
}

TEST_CASE("tensors that share a storage cannot take more memory than the file when copied") {
  // 300 transposed views of one matrix, each a call with the same arguments.
  std::string pickle = "\x80\x02}(";
  const std::string tensor = tensor_pickle(std::string("K\0", 2), "K\4K\4", "K\1K\4", "K\x10");
  const size_t begin = tensor.find("ctorch._utils"), end = tensor.size() - 2;
  pickle += text_opcode("0") + tensor.substr(begin, end - begin) + "q\1";
  for (int i = 1; i < 300; ++i) pickle += text_opcode(str(i)) + "h\1";
  CHECK(contains(torch_refusal(checkpoint(pickle + "u.", 64)), "take more than twice the file's"));
  CHECK(contains(
      torch_refusal(checkpoint("\x80\x02}(" + text_opcode("0") + tensor.substr(begin, end - begin) +
                                   "q\1" + text_opcode("0") + "h\1u.",
                               64)),
      "'0' is there twice"));
}

TEST_CASE("zip archives that are broken are refused") {
  const std::string good = zip_file({{"t/a", "1234"}, {"t/b", "56"}});
  const auto refused = [&](const std::string& bytes, ErrorKind kind = ErrorKind::kMalformed) {
    return testing::refusal(kind, [&] { parse_zip(buffer_of(bytes)); });
  };
  REQUIRE(refused(good) == "accepted");
  const ZipArchive archive = parse_zip(buffer_of(good));
  REQUIRE(archive.find("t/b") != nullptr);
  CHECK(archive.data(*archive.find("t/b")) == "56");
  CHECK(archive.find("t/c") == nullptr);
  const auto with = [&](size_t at, const std::string& bytes) {
    return std::string(good).replace(at, bytes.size(), bytes);
  };
  const size_t second = good.find("PK\3\4", 1), directory = good.find("PK\1\2"),
               end = good.find("PK\5\6");
  CHECK(contains(refused(good + "x"), "directory is not at the end"));
  CHECK(contains(refused("x" + good), "the archive's directory has"));
  CHECK(contains(refused(good.substr(0, 21)), "a zip archive of 21 bytes"));
  CHECK(contains(refused(good.substr(0, good.size() - 1)), "not at the end"));
  CHECK(contains(refused(with(8, "\x08")), "what precedes its data differs"));
  CHECK(contains(refused(with(18, "\x05")), "what precedes its data differs"));
  CHECK(contains(refused(with(30, "x")), "what precedes its data differs"));
  CHECK(contains(refused(with(directory + 8, "\x01"), ErrorKind::kUnsupported), "is encrypted"));
  CHECK(contains(refused(with(directory + 10, "\x08"), ErrorKind::kUnsupported), "is compressed"));
  CHECK(contains(refused(with(directory + 20, "\x05")), "is broken"));
  CHECK(contains(refused(with(end + 8, "\x03")), "the end of the archive is broken"));
  CHECK(contains(refused(with(end + 8, {"\3\0\3", 3})), "bytes that remain"));
  CHECK(contains(refused(with(end + 12, "\x01")), "the archive's directory has"));
  // The second entry is the first again, or lies apart from it.
  const std::string one = zip_file({{"t/a", "1234"}});
  const size_t one_directory = one.find("PK\1\2");
  std::string twice = one.substr(0, one.size() - 22) + one.substr(one_directory);
  twice[twice.size() - 22 + 8] = twice[twice.size() - 22 + 10] = 2;
  twice[twice.size() - 22 + 12] = static_cast<char>(2 * (one.size() - 22 - one_directory));
  CHECK(contains(refused(twice), "(overlap or hole)"));
  CHECK(contains(refused(zip_file({{"t/a", "1"}, {"t/a", "2"}})), "is there twice"));
  CHECK(second > 0);
  for (size_t cut = 0; cut < good.size(); ++cut) CHECK(refused(good.substr(0, cut)) != "accepted");
}

TEST_CASE("every single-bit error of a checkpoint is survived") {
  const std::string good = read_file(golden("nested.pt"), 1 << 20);
  std::string bytes = good;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    try {
      for (const auto& [name, array] : parse_torch(buffer_of(bytes), "t.pt")->arrays()) {
        REQUIRE(array.bytes() <= 60);
      }
    } catch (const Error& error) {
      REQUIRE((error.kind() == ErrorKind::kMalformed || error.kind() == ErrorKind::kUnsupported));
    }
    bytes[bit / 8] = good[bit / 8];
  }
}

}  // namespace lumen::io

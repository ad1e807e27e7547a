#include "lib/io/torch_file.h"

#include <array>
#include <cstring>

#include "lib/base/checked.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/mapped_file.h"
#include "lib/io/name_index.h"
#include "lib/io/pickle.h"
#include "lib/io/safetensors.h"
#include "lib/io/shard_index.h"
#include "lib/io/zip.h"

namespace lumen::io {
namespace {

constexpr std::string_view kRebuildTensor = "torch._utils _rebuild_tensor_v2",
                           kRebuildParameter = "torch._utils _rebuild_parameter",
                           kTorchModule = "torch ";

struct StorageType {
  std::string_view global;
  uint64_t bytes;  // of an element
  std::optional<DType> dtype;

  std::string_view name() const { return global.substr(kTorchModule.size()); }
};
constexpr StorageType kStorageTypes[] = {
    {"torch FloatStorage", 4, DType::kF32},
    {"torch DoubleStorage", 8, DType::kF64},
    {"torch HalfStorage", 2, DType::kF16},
    {"torch BFloat16Storage", 2, DType::kBF16},
    {"torch LongStorage", 8, DType::kI64},
    {"torch IntStorage", 4, DType::kI32},
    {"torch ShortStorage", 2, std::nullopt},
    {"torch CharStorage", 1, DType::kI8},
    {"torch ByteStorage", 1, DType::kU8},
    {"torch BoolStorage", 1, DType::kBool},
    {"torch ComplexFloatStorage", 8, std::nullopt},
    {"torch ComplexDoubleStorage", 16, std::nullopt},
};

// All that a checkpoint's pickle may name.
std::vector<std::string_view> torch_globals() {
  std::vector<std::string_view> names = {"collections OrderedDict", kRebuildTensor,
                                         kRebuildParameter};
  for (const StorageType& type : kStorageTypes) names.push_back(type.global);
  return names;
}

const StorageType& storage_type(std::string_view global) {
  for (const StorageType& type : kStorageTypes) {
    if (type.global == global) return type;
  }
  fail(ErrorKind::kMalformed, "the type of its storage is ", quoted(global));
}

// Reads the values of a pickle that must be there and of a kind.
class PickleReader {
 public:
  explicit PickleReader(const Pickle& pickle) : pickle_(pickle) {}

  const Pickle& pickle() const { return pickle_; }

  void expect(const PickleValue& value, PickleKind kind, std::string_view what) const {
    if (value.kind == kind) return;
    fail(ErrorKind::kMalformed, what, " is ", describe(value.kind), ", expected ", describe(kind));
  }
  uint64_t natural(const PickleValue& value, std::string_view what) const {
    expect(value, PickleKind::kInt, what);
    const int64_t number = pickle_.integer(value);
    if (number < 0) fail(ErrorKind::kMalformed, what, " is ", number, ", expected at least 0");
    return static_cast<uint64_t>(number);
  }
  std::string_view text(const PickleValue& value, std::string_view what) const {
    expect(value, PickleKind::kText, what);
    return pickle_.text(value);
  }
  std::span<const PickleValue> tuple(const PickleValue& value, std::string_view what) const {
    expect(value, PickleKind::kTuple, what);
    return pickle_.items(value);
  }
  // Whether `value` is a call of `global`.
  bool is_call(const PickleValue& value, std::string_view global) const {
    return value.kind == PickleKind::kCall && pickle_.global(pickle_.items(value)[0]) == global;
  }
  // The arguments of such a call, `least` to `most` of them.
  std::span<const PickleValue> arguments(const PickleValue& call, size_t least, size_t most) const {
    const std::span<const PickleValue> given = pickle_.items(pickle_.items(call)[1]);
    if (given.size() < least || given.size() > most) {
      fail(ErrorKind::kMalformed, "is made of ", given.size(), " values, expected ", least);
    }
    return given;
  }

 private:
  const Pickle& pickle_;
};

// Bytes in the archive that tensors lie in.
struct Storage {
  const StorageType* type = nullptr;
  const ZipEntry* entry = nullptr;
  uint64_t elements = 0;
};

class StateDictReader {
 public:
  StateDictReader(const ZipArchive& archive, const std::string& folder, const Pickle& pickle)
      : archive_(archive), folder_(folder), reader_(pickle) {}

  std::vector<TorchTensor> read() {
    std::vector<TorchTensor> tensors;
    const std::span<const PickleValue> pairs = state_dict();
    for (size_t i = 0; i < pairs.size(); i += 2) {
      const std::string_view name = reader_.text(pairs[i], "a tensor's name");
      if (name.size() > limits::kTensorNameBytes) {
        fail(ErrorKind::kMalformed, "a tensor name of ", name.size(), " bytes; the limit is ",
             limits::kTensorNameBytes);
      }
      with_context([&] { return str("tensor ", quoted(name)); },
                   [&] { tensors.push_back(read_tensor(pairs[i + 1])); });
      tensors.back().name = name;
    }
    return tensors;
  }

 private:
  bool is_tensor(const PickleValue& value) const {
    return reader_.is_call(value, kRebuildTensor) || reader_.is_call(value, kRebuildParameter);
  }

  // The pairs of the dictionary of tensors: the one that was saved, or that in one of its entries.
  std::span<const PickleValue> state_dict() const {
    const Pickle& pickle = reader_.pickle();
    if (pickle.root().kind != PickleKind::kDict) {
      fail(ErrorKind::kUnsupported, "what was saved is ", describe(pickle.root().kind),
           "; expected a state dict: torch.save(model.state_dict(), …)");
    }
    const std::span<const PickleValue> root = pickle.items(pickle.root());
    size_t other = root.size();  // the first entry that is no tensor
    for (size_t i = root.size(); i > 0; i -= 2) {
      if (!is_tensor(root[i - 1])) other = i - 2;
    }
    if (other == root.size()) return root;
    for (const std::string_view wanted : {"state_dict", "model_state_dict", "model"}) {
      for (size_t i = 0; i < root.size(); i += 2) {
        if (root[i].kind == PickleKind::kText && pickle.text(root[i]) == wanted &&
            root[i + 1].kind == PickleKind::kDict) {
          return pickle.items(root[i + 1]);
        }
      }
    }
    const PickleValue& key = root[other];
    fail(ErrorKind::kUnsupported, "entry ",
         key.kind == PickleKind::kText ? quoted(pickle.text(key)) : std::string(describe(key.kind)),
         " is ", describe(root[other + 1].kind),
         ", not a tensor; expected a state dict: torch.save(model.state_dict(), …)");
  }

  Storage read_storage(const PickleValue& value) const {
    reader_.expect(value, PickleKind::kPersistent, "its storage");
    const auto id = reader_.tuple(reader_.pickle().items(value)[0], "its storage's id");
    if (id.size() != 5 || reader_.text(id[0], "the first word of its storage") != "storage") {
      fail(ErrorKind::kMalformed,
           "its storage's id is not ('storage', type, key, place, elements)");
    }
    reader_.expect(id[1], PickleKind::kGlobal, "the type of its storage");
    Storage storage;
    storage.type = &storage_type(reader_.pickle().global(id[1]));
    const std::string key = str(folder_, "data/", reader_.text(id[2], "its storage's key"));
    storage.elements = reader_.natural(id[4], "its storage's number of elements");
    storage.entry = archive_.find(key);
    if (storage.entry == nullptr) {
      fail(ErrorKind::kMalformed, "its storage ", quoted(key), " is missing");
    }
    const uint64_t bytes = (Checked(storage.elements) * storage.type->bytes).value();
    if (bytes != storage.entry->bytes) {
      fail(ErrorKind::kMalformed, "its storage ", quoted(key), " has ", storage.entry->bytes,
           " bytes, expected ", bytes, " for ", storage.elements, " elements of ",
           storage.type->name());
    }
    return storage;
  }

  // Extents and strides, checked against the `room` elements from the tensor's first on.
  void read_layout(const PickleValue& size, const PickleValue& stride, uint64_t room,
                   TorchTensor& tensor) const {
    const auto extents = reader_.tuple(size, "its shape");
    const auto strides = reader_.tuple(stride, "its strides");
    if (extents.size() > limits::kTensorDims || strides.size() != extents.size()) {
      fail(ErrorKind::kMalformed, extents.size(), " extents with ", strides.size(),
           " strides, expected equally many, at most ", limits::kTensorDims);
    }
    bool is_empty = false;
    Checked last = 0;
    for (size_t i = 0; i < extents.size(); ++i) {
      const uint64_t extent = reader_.natural(extents[i], "an extent");
      const uint64_t step = reader_.natural(strides[i], "a stride");
      tensor.shape.push_back(narrow<int64_t>(extent));
      tensor.strides[i] = narrow<int64_t>(step);
      is_empty = is_empty || extent == 0;
      last = last + Checked(extent == 0 ? 0 : extent - 1) * step;
    }
    check_extents("its shape", tensor.shape);
    if (is_empty) return;
    if (last.value() >= room) {
      fail(ErrorKind::kMalformed, "shape ", to_string(tensor.shape), " ends at element ",
           last.value(), " of the ", room, " that its storage has from there on");
    }
    if (static_cast<uint64_t>(tensor.shape.elements()) > room) {
      fail(ErrorKind::kUnsupported, "is expanded: its ", tensor.shape.elements(),
           " elements share ", room, "; save its clone()");
    }
  }

  TorchTensor read_tensor(const PickleValue& value) const {
    PickleValue call = value;
    if (reader_.is_call(call, kRebuildParameter)) call = reader_.arguments(call, 3, 3)[0];
    if (!reader_.is_call(call, kRebuildTensor)) {
      fail(ErrorKind::kMalformed, "is ", describe(call.kind), ", expected a tensor");
    }
    const auto arguments = reader_.arguments(call, 6, 7);  // metadata came later
    if (arguments.size() == 7 && arguments[6].kind != PickleKind::kNone &&
        !(arguments[6].kind == PickleKind::kDict && reader_.pickle().items(arguments[6]).empty())) {
      fail(ErrorKind::kUnsupported, "is a view that is conjugated or negated; save its clone()");
    }
    const Storage storage = read_storage(arguments[0]);
    const uint64_t first = reader_.natural(arguments[1], "its offset");
    if (first > storage.elements) {
      fail(ErrorKind::kMalformed, "begins at element ", first, " of a storage of ",
           storage.elements);
    }
    TorchTensor tensor;
    tensor.type = storage.type->name();
    tensor.element_bytes = storage.type->bytes;
    tensor.dtype = storage.type->dtype;
    read_layout(arguments[2], arguments[3], storage.elements - first, tensor);
    tensor.offset = storage.entry->offset + first * storage.type->bytes;
    return tensor;
  }

  const ZipArchive& archive_;
  const std::string& folder_;  // of all entries, with its "/"
  PickleReader reader_;
};

// Tensors that do not lie in rows, aligned, become copies; all of them together may not be larger
// than twice the file, though any number may share a storage.
void check_copies(const TorchFile& file, size_t first, uint64_t file_bytes) {
  Checked copied = 0;
  for (size_t i = first; i < file.tensors.size(); ++i) {
    const TorchTensor& tensor = file.tensors[i];
    if (tensor.is_contiguous() && tensor.offset % tensor.element_bytes == 0) continue;
    copied =
        copied + Checked(static_cast<uint64_t>(tensor.shape.elements())) * tensor.element_bytes;
    if (copied > Checked(file_bytes) * 2) {
      fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name),
           ": tensors that do not lie in rows take more than twice the file's ", file_bytes,
           " bytes; save them after contiguous()");
    }
  }
}

constexpr std::string_view kZipMagic = "PK\x03\x04";
// The first pickle of torch's older format: protocol 2, an integer of ten bytes.
constexpr std::string_view kOldMagic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

// The folder that torch.save puts all entries into, with its "/".
std::string archive_folder(const ZipArchive& archive) {
  constexpr std::string_view kPickle = "/data.pkl";
  std::string folder;
  for (const ZipEntry& entry : archive.entries) {
    if (!entry.name.ends_with(kPickle) ||
        entry.name.find('/') != entry.name.size() - kPickle.size()) {
      continue;
    }
    if (!folder.empty()) fail(ErrorKind::kMalformed, "the archive has two entries data.pkl");
    folder = entry.name.substr(0, entry.name.size() - kPickle.size() + 1);
  }
  if (folder.empty()) {
    fail(ErrorKind::kUnsupported, "a zip archive without data.pkl, no PyTorch checkpoint");
  }
  return folder;
}

// Adds one file to `file` as its next part.
void add_torch_part(TorchFile& file, std::shared_ptr<const Buffer> buffer) {
  const std::span<const std::byte> all(buffer->data, buffer->bytes);
  if (begins_with(all, kOldMagic)) {
    fail(ErrorKind::kUnsupported, "is in torch's format of before version 1.6; write it again: ",
         "torch.save(torch.load(FILE, map_location=\"cpu\", weights_only=True), FILE)");
  }
  if (!begins_with(all, kZipMagic)) {
    const std::string hint = content_hint(all);
    fail(ErrorKind::kMalformed, "not a PyTorch checkpoint", hint.empty() ? "" : ": ", hint);
  }
  const ZipArchive archive = parse_zip(buffer);
  const std::string folder = archive_folder(archive);
  if (const ZipEntry* order = archive.find(folder + "byteorder");
      order != nullptr && archive.data(*order) != "little") {
    fail(ErrorKind::kUnsupported, "the numbers are not little-endian");
  }
  const size_t first = file.tensors.size();
  const std::string pickle_name = folder + "data.pkl";
  const std::vector<std::string_view> globals = torch_globals();
  with_context([&] { return printable(pickle_name); },
               [&] {
                 const Pickle pickle(archive.checked_data(*archive.find(pickle_name)), globals);
                 std::vector<TorchTensor> tensors = StateDictReader(archive, folder, pickle).read();
                 for (TorchTensor& tensor : tensors) {
                   tensor.part = static_cast<uint32_t>(file.parts.size());
                   file.tensors.push_back(std::move(tensor));
                 }
                 check_unique_names(file.tensors, first);
                 check_copies(file, first, buffer->bytes);
               });
  file.file_bytes += buffer->bytes;
  file.parts.push_back(std::move(buffer));
}

// The elements of `tensor` in rows; `data` is its first.
Array gathered(const TorchTensor& tensor, const std::byte* data) {
  Array array = Array::zeros(*tensor.dtype, tensor.shape);
  const size_t size = tensor.element_bytes;
  std::byte* out = array.mutable_data();
  std::array<int64_t, Shape::kMaxRank> index{};
  const int rank = tensor.shape.rank();
  int64_t from = 0;  // elements
  for (int64_t i = 0; i < tensor.shape.elements(); ++i) {
    std::memcpy(out, data + static_cast<uint64_t>(from) * size, size);
    out += size;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      from += tensor.strides[a];
      if (++index[a] < tensor.shape[axis]) break;
      from -= tensor.strides[a] * tensor.shape[axis];
      index[a] = 0;
    }
  }
  return array;
}

}  // namespace

bool TorchTensor::is_contiguous() const {
  const Strides rows = contiguous_strides(shape);
  if (shape.elements() == 0) return true;
  for (int i = 0; i < shape.rank(); ++i) {
    const auto axis = static_cast<size_t>(i);
    if (shape[i] != 1 && strides[axis] != rows[axis]) return false;
  }
  return true;
}

Array TorchFile::array(const TorchTensor& tensor) const {
  if (!tensor.dtype) {
    fail(ErrorKind::kUnsupported, place_of(path), ": tensor ", quoted(tensor.name), " lies in a ",
         tensor.type, ", whose numbers Lumen cannot compute with");
  }
  const std::shared_ptr<const Buffer>& part = parts[tensor.part];
  if (tensor.is_contiguous()) {
    return mapped_array(part, tensor.offset, *tensor.dtype, tensor.shape);
  }
  return gathered(tensor, part->data + tensor.offset);
}

NamedArrays TorchFile::arrays() const {
  NamedArrays arrays;
  for (const TorchTensor& tensor : tensors) arrays.emplace(tensor.name, array(tensor));
  return arrays;
}

bool is_torch_file(std::span<const std::byte> bytes) {
  return begins_with(bytes, kZipMagic) || begins_with(bytes, kOldMagic);
}

std::shared_ptr<const TorchFile> parse_torch(std::shared_ptr<const Buffer> bytes,
                                             const std::string& path) {
  auto file = std::make_shared<TorchFile>();
  file->path = path;
  with_context(place_of(path), [&] { add_torch_part(*file, std::move(bytes)); });
  return file;
}

std::shared_ptr<const TorchFile> read_torch(const std::string& path) {
  return parse_torch(map_file(path), path);
}

std::shared_ptr<const TorchFile> read_torch_index(const std::string& index_path) {
  auto file = std::make_shared<TorchFile>();
  read_shards(index_path, *file, add_torch_part);
  return file;
}

NamedArrays read_tensors(const std::string& path) {
  const auto buffer = map_file(path);
  if (is_torch_file({buffer->data, buffer->bytes})) return parse_torch(buffer, path)->arrays();
  return parse_safetensors(buffer, path)->arrays();
}

}  // namespace lumen::io

#include "lib/io/pickle.h"

#include <algorithm>
#include <bit>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/byte_reader.h"

namespace lumen::io {
namespace {

constexpr std::string_view kOrderedDict = "collections OrderedDict";

// clang-format off
enum class Opcode : uint8_t {
  kMark = '(', kStop = '.', kNone = 'N', kTrue = 0x88, kFalse = 0x89, kProtocol = 0x80,
  kInt32 = 'J', kInt8 = 'K', kInt16 = 'M', kLong = 0x8a, kFloat = 'G', kText = 'X',
  kEmptyTuple = ')', kTuple = 't', kTuple1 = 0x85, kTuple2 = 0x86, kTuple3 = 0x87,
  kEmptyList = ']', kAppend = 'a', kAppends = 'e', kEmptyDict = '}', kSetItem = 's',
  kSetItems = 'u', kGetMemo = 'h', kGetMemo32 = 'j', kPutMemo = 'q', kPutMemo32 = 'r',
  kGlobal = 'c', kCall = 'R', kBuild = 'b', kPersistentId = 'Q',
};
// clang-format on

std::string hex(uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return str("0x", kDigits[byte >> 4], kDigits[byte & 15]);
}

}  // namespace

// Python's stack machine: values, marks, and a memo of values to use again.
class PickleMachine {
 public:
  explicit PickleMachine(Pickle& pickle)
      : pickle_(pickle), reader_(std::as_bytes(std::span(pickle.bytes_))) {}

  void run() {
    constexpr uint8_t kVersion = 2;
    if (next_opcode() != Opcode::kProtocol) fail_here("expected a pickle of protocol 2");
    if (const auto version = reader_.read<uint8_t>(); version != kVersion) {
      fail(ErrorKind::kUnsupported, "a pickle of protocol ", int{version},
           "; Lumen reads 2, which torch.save writes unless told otherwise");
    }
    for (;;) {
      const Opcode opcode = next_opcode();
      if (opcode == Opcode::kStop) break;
      step(opcode);
    }
    if (stack_.size() != 1 || !marks_.empty()) fail_here("a pickle ends with one value");
    if (reader_.remaining() != 0) fail_here(str(reader_.remaining(), " bytes follow the pickle"));
    pickle_.root_ = stack_[0];
  }

 private:
  [[noreturn]] void fail_here(std::string_view what) const {
    fail(ErrorKind::kMalformed, "byte ", opcode_at_, ": ", what);
  }

  Opcode next_opcode() {
    opcode_at_ = reader_.offset();
    return static_cast<Opcode>(reader_.read<uint8_t>());
  }

  // Bounds what the pickle's containers and memo hold together.
  void count(uint64_t values) {
    held_ += values;
    if (held_ > limits::kPickleValues) {
      fail_here(str("more than ", limits::kPickleValues, " values"));
    }
  }

  void push(PickleKind kind, uint64_t at = 0, uint32_t size = 0) {
    if (stack_.size() == limits::kPickleValues) fail_here("the stack is too high");
    stack_.push_back({kind, size, at});
  }

  // Values above the last mark, or all.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  PickleValue pop() {
    if (stack_.size() <= floor()) fail_here("the stack has no value for this opcode");
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
  }

  // Takes the values above the last mark off the stack; valid until the next push.
  std::span<const PickleValue> pop_marked() {
    if (marks_.empty()) fail_here("there is no mark for this opcode");
    const size_t first = marks_.back();
    marks_.pop_back();
    marked_.assign(stack_.begin() + static_cast<ptrdiff_t>(first), stack_.end());
    stack_.resize(first);
    return marked_;
  }

  void push_items(PickleKind kind, std::span<const PickleValue> items) {
    count(items.size());
    const uint64_t at = pickle_.items_.size();
    pickle_.items_.insert(pickle_.items_.end(), items.begin(), items.end());
    push(kind, at, static_cast<uint32_t>(items.size()));
  }

  void push_tuple(size_t size) {
    PickleValue items[3];
    for (size_t i = size; i > 0; --i) items[i - 1] = pop();
    push_items(PickleKind::kTuple, {items, size});
  }

  void push_container(PickleKind kind) {
    count(2);  // an empty vector takes more than a value
    pickle_.containers_.emplace_back();
    push(kind, pickle_.containers_.size() - 1);
  }

  // Appends to the list, or to the pairs of the dictionary, at the top of the stack.
  void add(PickleKind kind, std::span<const PickleValue> items) {
    if (stack_.size() <= floor() || stack_.back().kind != kind) {
      fail_here(str("expected ", describe(kind), " to add to"));
    }
    if (kind == PickleKind::kDict && items.size() % 2 != 0) fail_here("a key without a value");
    count(items.size());
    auto& container = pickle_.containers_[stack_.back().at];
    container.insert(container.end(), items.begin(), items.end());
  }

  void push_long() {
    const auto bytes = reader_.read<uint8_t>();
    if (bytes > 8) fail_here(str("an integer of ", int{bytes}, " bytes; Lumen reads 8"));
    const std::string_view digits = reader_.text(bytes);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(digits[i])} << 8 * i;
    const bool negative = bytes > 0 && static_cast<int8_t>(digits[bytes - 1]) < 0;
    if (negative && bytes < 8) value |= ~uint64_t{0} << 8 * bytes;
    push(PickleKind::kInt, value);
  }

  void push_text() {
    const auto bytes = reader_.read<uint32_t>();
    const uint64_t at = reader_.offset();
    if (!is_valid_utf8(reader_.text(bytes))) fail_here("a text that is not UTF-8");
    push(PickleKind::kText, at, bytes);
  }

  std::string_view line() {
    const std::string_view rest = std::string_view(pickle_.bytes_).substr(reader_.offset());
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) fail_here("a name without an end");
    reader_.skip(end + 1);
    return rest.substr(0, end);
  }

  void push_global() {
    const std::string_view module = line(), name = line();
    const std::string full = str(module, " ", name);
    const auto found = std::find(pickle_.globals_.begin(), pickle_.globals_.end(), full);
    if (found == pickle_.globals_.end()) {
      const bool is_torch = module == "torch" || module.starts_with("torch.");
      fail(is_torch ? ErrorKind::kUnsupported : ErrorKind::kMalformed, "refused: global ",
           printable(str(module, ".", name)), " at byte ", opcode_at_,
           "; only tensors of plain types are read and nothing is ever called: save the weights ",
           "as safetensors");
    }
    push(PickleKind::kGlobal, static_cast<uint64_t>(found - pickle_.globals_.begin()));
  }

  void push_call() {
    const PickleValue arguments = pop(), callee = pop();
    if (callee.kind != PickleKind::kGlobal || arguments.kind != PickleKind::kTuple) {
      fail_here("a call of something else than a global");
    }
    if (pickle_.global(callee) != kOrderedDict) {
      const PickleValue items[] = {callee, arguments};
      push_items(PickleKind::kCall, items);
      return;
    }
    if (arguments.size != 0) fail_here("an OrderedDict with arguments");
    push_container(PickleKind::kDict);
  }

  // Sets the attributes of an object: those of an OrderedDict (torch's _metadata) matter nothing.
  void build() {
    pop();
    if (stack_.size() <= floor() || stack_.back().kind != PickleKind::kDict) {
      fail_here("sets attributes of something else than an OrderedDict");
    }
  }

  void put_memo(uint64_t number) {
    if (stack_.size() <= floor()) fail_here("there is no value to remember");
    // Every entry takes bytes of the pickle, so that none can have a larger number.
    if (number > opcode_at_) fail_here(str("entry ", number, " of the memo, out of range"));
    if (number >= memo_.size()) {
      count(number + 1 - memo_.size());
      memo_.resize(number + 1);
      is_set_.resize(number + 1);
    }
    memo_[number] = stack_.back();
    is_set_[number] = true;
  }

  void get_memo(uint64_t number) {
    if (number >= memo_.size() || !is_set_[number]) {
      fail_here(str("entry ", number, " of the memo, which is not set"));
    }
    const PickleValue& value = memo_[number];
    push(value.kind, value.at, value.size);
  }

  void mark() {
    if (marks_.size() == limits::kPickleDepth) {
      fail_here(str("nested deeper than ", limits::kPickleDepth));
    }
    marks_.push_back(stack_.size());
  }

  void step(Opcode opcode);

  Pickle& pickle_;
  ByteReader reader_;
  uint64_t opcode_at_ = 0, held_ = 0;
  std::vector<PickleValue> stack_, memo_, marked_;
  std::vector<bool> is_set_;   // of memo_
  std::vector<size_t> marks_;  // sizes of the stack
};

void PickleMachine::step(Opcode opcode) {
  switch (opcode) {
    case Opcode::kMark:
      return mark();
    case Opcode::kNone:
      return push(PickleKind::kNone);
    case Opcode::kTrue:
    case Opcode::kFalse:
      return push(PickleKind::kBool, opcode == Opcode::kTrue ? 1 : 0);
    case Opcode::kInt8:
      return push(PickleKind::kInt, reader_.read<uint8_t>());
    case Opcode::kInt16:
      return push(PickleKind::kInt, reader_.read<uint16_t>());
    case Opcode::kInt32:
      return push(PickleKind::kInt, static_cast<uint64_t>(int64_t{reader_.read<int32_t>()}));
    case Opcode::kLong:
      return push_long();
    case Opcode::kFloat:
      return push(PickleKind::kFloat, reader_.read<uint64_t>());  // nobody asks for its value
    case Opcode::kText:
      return push_text();
    case Opcode::kEmptyTuple:
      return push_tuple(0);
    case Opcode::kTuple1:
      return push_tuple(1);
    case Opcode::kTuple2:
      return push_tuple(2);
    case Opcode::kTuple3:
      return push_tuple(3);
    case Opcode::kTuple:
      return push_items(PickleKind::kTuple, pop_marked());
    case Opcode::kEmptyList:
      return push_container(PickleKind::kList);
    case Opcode::kEmptyDict:
      return push_container(PickleKind::kDict);
    case Opcode::kAppend: {
      const PickleValue item[] = {pop()};
      return add(PickleKind::kList, item);
    }
    case Opcode::kAppends:
      return add(PickleKind::kList, pop_marked());
    case Opcode::kSetItem: {
      const PickleValue value = pop();
      const PickleValue pair[] = {pop(), value};
      return add(PickleKind::kDict, pair);
    }
    case Opcode::kSetItems:
      return add(PickleKind::kDict, pop_marked());
    case Opcode::kGetMemo:
      return get_memo(reader_.read<uint8_t>());
    case Opcode::kGetMemo32:
      return get_memo(reader_.read<uint32_t>());
    case Opcode::kPutMemo:
      return put_memo(reader_.read<uint8_t>());
    case Opcode::kPutMemo32:
      return put_memo(reader_.read<uint32_t>());
    case Opcode::kGlobal:
      return push_global();
    case Opcode::kCall:
      return push_call();
    case Opcode::kBuild:
      return build();
    case Opcode::kPersistentId: {
      const PickleValue id[] = {pop()};
      return push_items(PickleKind::kPersistent, id);
    }
    case Opcode::kStop:
    case Opcode::kProtocol:
      break;
  }
  fail_here(str("opcode ", hex(static_cast<uint8_t>(opcode)), ", which torch.save does not write"));
}

Pickle::Pickle(std::string_view bytes, std::span<const std::string_view> globals)
    : globals_(globals) {
  if (bytes.size() > limits::kPickleBytes) {
    fail(ErrorKind::kMalformed, "a pickle of ", bytes.size(), " bytes; the limit is ",
         limits::kPickleBytes);
  }
  bytes_ = bytes;
  PickleMachine(*this).run();
}

bool Pickle::boolean(const PickleValue& value) const {
  LUMEN_CHECK(value.kind == PickleKind::kBool);
  return value.at != 0;
}

int64_t Pickle::integer(const PickleValue& value) const {
  LUMEN_CHECK(value.kind == PickleKind::kInt);
  return static_cast<int64_t>(value.at);
}

std::string_view Pickle::text(const PickleValue& value) const {
  LUMEN_CHECK(value.kind == PickleKind::kText);
  return std::string_view(bytes_).substr(value.at, value.size);
}

std::string_view Pickle::global(const PickleValue& value) const {
  LUMEN_CHECK(value.kind == PickleKind::kGlobal);
  return globals_[value.at];
}

std::span<const PickleValue> Pickle::items(const PickleValue& value) const {
  switch (value.kind) {
    case PickleKind::kList:
    case PickleKind::kDict:
      return containers_[value.at];
    case PickleKind::kTuple:
    case PickleKind::kCall:
    case PickleKind::kPersistent:
      return std::span(items_).subspan(value.at, value.size);
    default:
      LUMEN_CHECK(false);
      return {};
  }
}

std::string_view describe(PickleKind kind) {
  switch (kind) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return "a bool";
    case PickleKind::kInt:
      return "an integer";
    case PickleKind::kFloat:
      return "a number";
    case PickleKind::kText:
      return "a text";
    case PickleKind::kTuple:
      return "a tuple";
    case PickleKind::kList:
      return "a list";
    case PickleKind::kDict:
      return "a dictionary";
    case PickleKind::kGlobal:
      return "a name";
    case PickleKind::kCall:
      return "a call";
    case PickleKind::kPersistent:
      return "a storage";
  }
  return "";
}

}  // namespace lumen::io

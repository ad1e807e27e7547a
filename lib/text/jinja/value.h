// Values of the template language: Python's, as far as a template can see them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/text/chat_template.h"
#include "lib/text/jinja/heap.h"

namespace lumen::text::jinja {

enum class Kind : uint8_t {
  kMissing,    // internal: no value at all (an argument that was not given)
  kUndefined,  // jinja2's Undefined: prints as "", fails when used
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kSequence,
  kDict,
  kNamespace,
  kCallable,
  kLoop,
  kCycler,
  kJoiner,
};

class String;
class Sequence;
class Dict;
class Namespace;
class Callable;

class Value {
 public:
  Value() : kind_(Kind::kMissing), integer_(0) {}
  Value(const Value& other) : kind_(other.kind_), integer_(other.integer_) { retain(); }
  Value(Value&& other) noexcept
      : kind_(std::exchange(other.kind_, Kind::kMissing)), integer_(other.integer_) {}
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(integer_, other.integer_);
    return *this;
  }
  ~Value() {
    if (has_object()) object_->release();
  }

  static Value none() { return Value(Kind::kNone, 0); }
  static Value boolean(bool b) { return Value(Kind::kBool, b); }
  static Value integer(int64_t i) { return Value(Kind::kInt, i); }
  static Value real(double d) {
    Value value(Kind::kFloat, 0);
    value.real_ = d;
    return value;
  }
  // `message` is what using it says: "'x' is undefined".
  static Value undefined(Heap& heap, std::string message);
  static Value text(Heap& heap, std::string text);
  template <typename T>
  static Value object(const Ref<T>& object) {
    Value value(T::kKind, 0);
    value.object_ = object.get();
    value.retain();
    return value;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool given() const { return kind_ != Kind::kMissing; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_sequence() const { return kind_ == Kind::kSequence; }
  // Python's int includes bool; a number is either or a float.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  // The caller has checked the kind.
  bool as_bool() const { return integer_ != 0; }
  int64_t as_int() const { return integer_; }  // of a bool too
  double as_double() const { return kind_ == Kind::kFloat ? real_ : double(integer_); }
  String& string() const;
  std::string_view view() const;  // the bytes of a string
  template <typename T>
  T& as() const {
    return *static_cast<T*>(object_);
  }
  Sequence& sequence() const;
  Dict& dict() const;

  // The same object, or the same constant: Python's `is`.
  bool same(const Value& other) const { return kind_ == other.kind_ && integer_ == other.integer_; }

 private:
  Value(Kind kind, int64_t i) : kind_(kind), integer_(i) {}
  bool has_object() const { return kind_ == Kind::kUndefined || kind_ >= Kind::kString; }
  void retain() {
    if (has_object()) object_->retain();
  }

  Kind kind_;
  union {
    int64_t integer_;
    double real_;
    Object* object_;
  };
};

using Values = std::vector<Value, HeapAllocator<Value>>;

// A str, or markupsafe's Markup (text that `+` and methods do not escape).
class String final : public Object {
 public:
  static constexpr Kind kKind = Kind::kString;
  String(Heap& heap, std::string text, bool markup = false);

  const std::string& text() const { return text_; }
  bool markup() const { return markup_; }
  int64_t length() const;  // code points

 private:
  void forget() override {}
  std::string text_;
  mutable int64_t length_ = -1;
  bool markup_;
};

// How much of one list has decided what a rendering did so far: had the list only its first n
// items, n ≥ needed, all would be the same. Other such lists can be tried.
struct Horizon {
  int64_t needed = 0;
  int64_t size = 0;              // of the list
  bool looks_ahead = false;      // loops over it asked whether an item is the last
  std::optional<int64_t> trial;  // how long the list is to be, while that is tried

  void see(int64_t items) { needed = std::max(needed, items); }
  // Throws TrialFailure during a trial.
  void see_all() {
    if (trial) throw TrialFailure();
    needed = size;
  }
};

// Everything that is a row of values.
class Sequence final : public Object {
 public:
  static constexpr Kind kKind = Kind::kSequence;
  enum class Flavour : uint8_t {
    kList,
    kTuple,
    kGroup,  // (grouper, list): the tuples of `groupby`
    kRange,  // range(start, stop, step)
    kKeys,   // views of a dict
    kValues,
    kItems,
    kGenerator,  // what lazy filters give: can be walked once, has no length
  };

  Sequence(Heap& heap, Flavour flavour, Values items);

  Flavour flavour() const { return flavour_; }
  bool is_list() const { return flavour_ == Flavour::kList; }
  bool is_tuple() const { return flavour_ == Flavour::kTuple || flavour_ == Flavour::kGroup; }
  bool is_generator() const { return flavour_ == Flavour::kGenerator; }
  bool is_range() const { return flavour_ == Flavour::kRange; }
  // len(), indexing and slicing work.
  bool indexable() const { return is_list() || is_tuple() || is_range(); }

  const Values& items() const {
    if (horizon_ != nullptr) horizon_->see_all();
    return items_;
  }
  Value remove(size_t index);  // list.pop
  // What is left of a generator, which is spent thereafter.
  Values drain() {
    before_change();
    return std::exchange(items_, {});
  }

  // What a part of items() would say, which more lists than this one have in common.
  int64_t size() const;
  bool empty() const;
  const Value* element(int64_t index) const;  // from the end if negative; null if there is none

  // Makes this the horizon's list from its item `skipped` on.
  void watch(Horizon& horizon, int64_t skipped) {
    horizon_ = &horizon;
    skipped_ = skipped;
  }
  Horizon* horizon() const { return horizon_; }  // null if there is none
  int64_t skipped() const { return skipped_; }
  // items(), of which the caller tells the horizon what it saw.
  const Values& unseen_items() const { return items_; }

  struct Bounds {
    int64_t start, stop, step;
  };
  Bounds bounds = {0, 0, 1};  // of a range

 private:
  void forget() override { items_.clear(); }
  Values items_;
  Horizon* horizon_ = nullptr;
  int64_t skipped_ = 0;
  Flavour flavour_;
};

// A dict; keeps the order of insertion. Keys are compared as Python does (1 == 1.0 == True).
class Dict final : public Object {
 public:
  static constexpr Kind kKind = Kind::kDict;
  using Item = std::pair<Value, Value>;
  explicit Dict(Heap& heap);

  using Items = std::vector<Item, HeapAllocator<Item>>;

  const Items& items() const { return items_; }
  size_t size() const { return items_.size(); }
  // nullptr if absent. Throws Failure if `key` cannot be a key.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);

 private:
  void forget() override;
  int64_t position(const Value& key, size_t hash) const;
  Items items_;
  // From the ninth item on: positions by hash.
  std::unordered_multimap<size_t, uint32_t, std::identity, std::equal_to<>,
                          HeapAllocator<std::pair<const size_t, uint32_t>>>
      index_;
};

// namespace(): attributes that `set ns.x = …` may change.
class Namespace final : public Object {
 public:
  static constexpr Kind kKind = Kind::kNamespace;
  Namespace(Heap& heap, Ref<Dict> attributes)
      : Object(heap, sizeof(Namespace)), attributes_(std::move(attributes)) {}
  const Dict& attributes() const { return *attributes_; }
  void set(const Value& name, Value value) {
    before_change();
    attributes_->set(name, std::move(value));
  }

 private:
  void forget() override { attributes_ = {}; }
  Ref<Dict> attributes_;
};

// Values for a call.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Interpreter;

// Something that can be called: a function, a bound method, a macro.
class Callable : public Object {
 public:
  static constexpr Kind kKind = Kind::kCallable;
  virtual Value call(Interpreter& interpreter, Arguments& arguments) = 0;
  // What printing it shows, and what error messages call it.
  virtual std::string description() const = 0;
  // Attributes templates may read; missing if there is none of that name.
  virtual Value attribute(Interpreter&, std::string_view) { return {}; }

 protected:
  using Object::Object;
};

// cycler(…)
class Cycler final : public Object {
 public:
  static constexpr Kind kKind = Kind::kCycler;
  Cycler(Heap& heap, Values values) : Object(heap, sizeof(Cycler)), items(std::move(values)) {}
  Values items;
  size_t position = 0;
  using Object::before_change;

 private:
  void forget() override { items.clear(); }
};

// joiner(separator): "" the first time it is called, then the separator.
class Joiner final : public Object {
 public:
  static constexpr Kind kKind = Kind::kJoiner;
  Joiner(Heap& heap, Value text) : Object(heap, sizeof(Joiner)), separator(std::move(text)) {}
  Value separator;
  bool used = false;
  using Object::before_change;

 private:
  void forget() override { separator = {}; }
};

inline String& Value::string() const {
  return as<String>();
}
inline std::string_view Value::view() const {
  return string().text();
}
inline Sequence& Value::sequence() const {
  return as<Sequence>();
}
inline Dict& Value::dict() const {
  return as<Dict>();
}

Value make_list(Heap& heap, Values items);
Value make_tuple(Heap& heap, Values items);
Value make_generator(Heap& heap, Values items);
Value make_markup(Heap& heap, std::string text);

// `json` as a value. Strings are repaired to valid UTF-8. Throws Failure for integers that do not
// fit 64 bits.
Value from_json(Heap& heap, const Json& json, int depth = 0);

// Parses JSON text. Throws Failure if it is malformed or nested too deeply.
Value parse_json(Heap& heap, std::string_view text);

}  // namespace lumen::text::jinja

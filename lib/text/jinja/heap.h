// What one rendering may spend, and the objects it makes.
//
// A template is untrusted, so every value lives in a Heap that counts live bytes and steps and
// throws Failure when a limit of lib/base/limits.h is passed. Objects are reference counted;
// destruction is iterative (a list nested a million deep is legal), and cycles, which only
// namespaces and closures can make, are broken when the heap goes away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "lib/base/limits.h"
#include "lib/base/strings.h"

namespace lumen::text::jinja {

// A template cannot go on; becomes Error(kMalformed) with the template's name and line.
class Failure : public std::exception {
 public:
  explicit Failure(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

// Throws a Failure whose message is the concatenation of `parts`.
template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw Failure(str(parts...));
}

// What was tried of another rendering (Heap::Trial) needs more than is known of it. No Failure: the
// rendering itself is not concerned.
class TrialFailure : public std::exception {};

class Heap;

// Base of everything a Value can refer to.
class Object {
 public:
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

 protected:
  // `bytes` is charged until the object dies. Throws Failure over the limit.
  Object(Heap& heap, size_t bytes);
  virtual ~Object();

  Heap& heap() const { return *heap_; }
  // To be called before anything that a template can tell from before changes in this object.
  void before_change() const;

 private:
  friend class Heap;
  template <typename T>
  friend class Ref;
  friend class Value;

  // Drops all references this object holds, to break cycles.
  virtual void forget() = 0;
  void retain() { ++references_; }
  void release();

  Heap* heap_;
  Object* previous_ = nullptr;
  Object* next_ = nullptr;
  size_t charged_;
  uint32_t references_ = 0;
  uint32_t stage_;  // of the heap, in which it was made
};

// A counted pointer to an object of a known type.
template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_) static_cast<Object*>(object_)->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_) static_cast<Object*>(object_)->release();
  }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  T* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

// Not thread-safe: one heap belongs to one rendering, and while it lives it is the current heap of
// its thread, which HeapAllocator charges.
class Heap {
 public:
  Heap() : outer_(std::exchange(current_, this)) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  // Constructs a T(*this, args…).
  template <typename T, typename... Arguments>
  Ref<T> make(Arguments&&... arguments) {
    return Ref<T>(new T(*this, std::forward<Arguments>(arguments)...));
  }

  // Spends `count` steps: about 100 ns of work each.
  void step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits::kTemplateSteps) too_many_steps();
  }
  // Spends the steps of one look at `bytes` bytes of text.
  void touch(size_t bytes) {
    touched_ += bytes + kTouchOverhead;
    step(touched_ / kBytesPerStep);
    touched_ %= kBytesPerStep;
  }

  // Takes and gives back `bytes` of the memory limit.
  void charge(size_t bytes);
  void discharge(size_t bytes) { live_bytes_ -= bytes; }
  // Throws as charge would, without taking anything.
  void check(size_t bytes) const;

  static Heap& current() { return *current_; }

  // While it lives, objects that are older must not change; `changed` then tells whether one did.
  class Stage {
   public:
    explicit Stage(Heap& heap) : heap_(heap), before_(std::exchange(heap.stage_, ++heap.stages_)) {
      heap.changed_ = false;
    }
    ~Stage() { heap_.stage_ = before_; }
    Stage(const Stage&) = delete;
    Stage& operator=(const Stage&) = delete;
    bool changed() const { return heap_.changed_; }

   private:
    Heap& heap_;
    const uint32_t before_;
  };

  // While it lives, what happens is another rendering's: a change of an older object throws
  // TrialFailure instead, and the steps are given back.
  class Trial {
   public:
    explicit Trial(Heap& heap)
        : heap_(heap), stage_(heap), steps_(heap.steps_), touched_(heap.touched_) {
      heap.on_trial_ = true;
    }
    ~Trial() {
      heap_.on_trial_ = false;
      heap_.steps_ = steps_;
      heap_.touched_ = touched_;
    }
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

   private:
    Heap& heap_;
    const Stage stage_;
    const uint64_t steps_, touched_;
  };

  bool in_stage() const { return stage_ != 0; }

 private:
  friend class Object;
  [[noreturn]] void too_many_steps() const;
  void link(Object* object);
  void unlink(Object* object);
  void bury(Object* object);

  static constexpr size_t kBytesPerStep = 16, kTouchOverhead = 4;
  uint64_t steps_ = 0;
  uint64_t touched_ = 0;  // bytes not yet worth a step
  uint32_t stage_ = 0, stages_ = 0;
  bool changed_ = false, on_trial_ = false;
  size_t live_bytes_ = 0;
  Object* objects_ = nullptr;
  Object* dead_ = nullptr;
  bool burying_ = false;
  Heap* outer_;
  static thread_local Heap* current_;
};

// What a block of memory costs beyond its size.
inline constexpr size_t kAllocationOverhead = 16;

// The allocator of containers whose size a template decides.
template <typename T>
struct HeapAllocator {
  using value_type = T;
  HeapAllocator() = default;
  template <typename U>
  HeapAllocator(const HeapAllocator<U>&) {}  // NOLINT: implicit by design

  T* allocate(size_t count) {
    if (count > SIZE_MAX / 2 / sizeof(T)) Heap::current().check(SIZE_MAX);
    Heap::current().charge(count * sizeof(T) + kAllocationOverhead);
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* block, size_t count) {
    Heap::current().discharge(count * sizeof(T) + kAllocationOverhead);
    std::allocator<T>().deallocate(block, count);
  }
  friend bool operator==(const HeapAllocator&, const HeapAllocator&) { return true; }
};

// Text under construction, charged to a heap as it grows.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(heap) {}
  ~TextBuilder() { heap_.discharge(charged_); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  void append(std::string_view text) {
    reserve(text.size());
    text_ += text;
  }
  void append(char c) { append(std::string_view(&c, 1)); }
  void append(size_t count, char c) {
    reserve(count);
    text_.append(count, c);
  }
  size_t size() const { return text_.size(); }
  std::string_view view() const { return text_; }
  // The text; the builder is empty afterwards and what it held is no longer charged.
  std::string take();

 private:
  void reserve(size_t more);
  Heap& heap_;
  std::string text_;
  size_t charged_ = 0;
};

}  // namespace lumen::text::jinja

// A non-owning reference to a callable: what a parallel loop takes, without allocation.
#pragma once

#include <type_traits>
#include <utility>

namespace lumen {

template <typename Signature>
class FunctionRef;

// Refers to a callable that must outlive the reference. Two pointers, trivially copyable.
template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& callable)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(&callable))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace lumen

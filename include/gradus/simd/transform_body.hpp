// SPDX-License-Identifier: BSL-1.0
//
// The loop of transform.hpp for one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::simd::GRADUS_TARGET {

/// The numbers of a vector, for formulas that are written elsewhere: GCC lowers vector types in a function before it
/// inlines it, so that such a formula must see none. transform_on inlines its functions, which must be
/// GRADUS_ALWAYS_INLINE for it; where it does not, a class with a copy constructor is passed in memory with every
/// instruction set.
template <class Real>
class numbers {
 public:
  using real = Real;
  using pack = packet<Real>;
  using vector = typename pack::type;
  static constexpr index_t lanes = pack::lanes;

  numbers() noexcept {}  // NOLINT: formulas have arrays of results that are computed later
  numbers(Real number) noexcept : value{pack::broadcast(number)} {}  // NOLINT: formulas have constants
  numbers(const numbers& other) noexcept : value{other.value} {}
  numbers& operator=(const numbers& other) noexcept {
    value = other.value;
    return *this;
  }
  ~numbers() = default;

  [[nodiscard]] static numbers of(const vector& value) noexcept {
    numbers result;
    result.value = value;
    return result;
  }

  numbers operator-() const noexcept { return of(-value); }
  numbers operator+(const numbers& b) const noexcept { return of(value + b.value); }
  numbers operator-(const numbers& b) const noexcept { return of(value - b.value); }
  numbers operator*(const numbers& b) const noexcept { return of(value * b.value); }
  numbers operator/(const numbers& b) const noexcept { return of(value / b.value); }
  numbers& operator+=(const numbers& b) noexcept { return *this = *this + b; }
  numbers& operator-=(const numbers& b) noexcept { return *this = *this - b; }

  vector value;
};

// Templates: GCC gives friends that a class template defines no target.
template <class Real>
numbers<Real> operator+(Real a, const numbers<Real>& b) noexcept {
  return numbers<Real>{a} + b;
}
template <class Real>
numbers<Real> operator-(Real a, const numbers<Real>& b) noexcept {
  return numbers<Real>{a} - b;
}
template <class Real>
numbers<Real> operator*(Real a, const numbers<Real>& b) noexcept {
  return numbers<Real>{a} * b;
}
template <class Real>
numbers<Real> operator/(Real a, const numbers<Real>& b) noexcept {
  return numbers<Real>{a} / b;
}
/// a > b ? a : b
template <class Real>
numbers<Real> larger(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return numbers<Real>::of(packet<Real>::larger(a.value, b.value));
}
/// a < b ? a : b
template <class Real>
numbers<Real> smaller(const numbers<Real>& a, const numbers<Real>& b) noexcept {
  return numbers<Real>::of(a.value < b.value ? a.value : b.value);
}
template <class Real>
numbers<Real> square_root(const numbers<Real>& a) noexcept {
  return numbers<Real>::of(packet<Real>::square_root(a.value));
}
/// Adds the squares of the numbers to as many sums.
template <class Real>
void add_squares(const numbers<Real>& a, double* sums) noexcept {
  packet<Real>{}.template add_to<true>(sums, a.value);
}

template <class Element, std::size_t Outputs, std::size_t Inputs, class Step, std::size_t... Out, std::size_t... In>
GRADUS_ALWAYS_INLINE void step_on(packet<Element> p, index_t i, const Step& step,
                                  const arrays<Element, Outputs>& written, const arrays<const Element, Inputs>& read,
                                  std::index_sequence<Out...> /*written*/,
                                  std::index_sequence<In...> /*read*/) noexcept {
  using number = numbers<typename packet<Element>::real>;
  [[maybe_unused]] number values[Outputs + 1] = {number::of(p.load(written.data[Out] + i))...};
  step(values[Out]..., number::of(p.load(read.data[In] + i))...);
  (p.store(written.data[Out] + i, values[Out].value), ...);
}

template <class Element, std::size_t Outputs, std::size_t Inputs, class Step>
[[gnu::flatten]] void transform_on(target /*of*/, index_t count, const Step& given,
                                   const arrays<Element, Outputs>& to_write,
                                   const arrays<const Element, Inputs>& to_read) noexcept {
  const Step step = given;  // copies: a store of elements could change what is not local
  const arrays<Element, Outputs> written = to_write;
  const arrays<const Element, Inputs> read = to_read;
  constexpr std::make_index_sequence<Outputs> outputs{};
  constexpr std::make_index_sequence<Inputs> inputs{};
  constexpr index_t lanes = packet<Element>::lanes;
  index_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    step_on(packet<Element>{}, i, step, written, read, outputs, inputs);
  }
  if (i < count) {
    step_on(packet<Element>{count - i}, i, step, written, read, outputs, inputs);
  }
}

/// Element i adds to sum i % 16, whatever the size of a vector.
template <class Element>
[[nodiscard]] double sum_of_squares_on(target /*of*/, index_t count, const Element* x) noexcept {
  constexpr index_t chains = 16;
  using doubles = packet<double>;
  constexpr index_t lanes = doubles::lanes;
  typedef Element some __attribute__((vector_size(lanes * sizeof(Element)), aligned(alignof(Element)), may_alias));
  typename doubles::type sums[chains / lanes] = {};
  index_t i = 0;
  for (; i + chains <= count; i += chains) {
    for (index_t k = 0; k < chains / lanes; ++k) {
      const auto terms =
          __builtin_convertvector(*reinterpret_cast<const some*>(x + i + k * lanes), typename doubles::type);
      sums[k] += terms * terms;
    }
  }
  double all[chains];
  for (index_t k = 0; k < chains / lanes; ++k) {
    doubles{}.store(all + k * lanes, sums[k]);
  }
  for (index_t k = 0; i < count; ++i, ++k) {
    all[k] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  double sum = 0;
  for (const double each : all) {
    sum += each;
  }
  return sum;
}

}  // namespace gradus::simd::GRADUS_TARGET

#endif

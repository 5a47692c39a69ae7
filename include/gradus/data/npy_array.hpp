// SPDX-License-Identifier: BSL-1.0
//
// Arrays in NumPy's .npy files: reads and writes them.
#pragma once

#include <algorithm>         // std::max
#include <array>             // std::array
#include <bit>               // std::endian
#include <concepts>          // std::same_as
#include <cstddef>           // std::size_t
#include <cstdint>           // std::int8_t to std::uint64_t, std::uintptr_t
#include <cstring>           // std::memcpy
#include <initializer_list>  // std::initializer_list
#include <limits>            // std::numeric_limits
#include <memory>            // std::make_unique
#include <span>              // std::as_bytes, std::span
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <type_traits>       // std::remove_const_t
#include <utility>           // std::move
#include <vector>            // std::vector

#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/mapped_file.hpp"
#include "gradus/core/output_file.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/detail/npy/archive.hpp"
#include "gradus/data/detail/npy/header.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/tensor.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::data {

static_assert(std::endian::native == std::endian::little, "gradus: .npy files are read on little-endian machines");

/// NumPy's name of an element type, with its byte order; empty for a type that .npy files cannot hold.
template <class Element>
inline constexpr std::string_view npy_type_name = "";
template <>
inline constexpr std::string_view npy_type_name<bool> = "|b1";
template <>
inline constexpr std::string_view npy_type_name<std::int8_t> = "|i1";
template <>
inline constexpr std::string_view npy_type_name<std::uint8_t> = "|u1";
template <>
inline constexpr std::string_view npy_type_name<std::int16_t> = "<i2";
template <>
inline constexpr std::string_view npy_type_name<std::int32_t> = "<i4";
template <>
inline constexpr std::string_view npy_type_name<std::int64_t> = "<i8";
template <>
inline constexpr std::string_view npy_type_name<std::uint16_t> = "<u2";
template <>
inline constexpr std::string_view npy_type_name<std::uint32_t> = "<u4";
template <>
inline constexpr std::string_view npy_type_name<std::uint64_t> = "<u8";
template <>
inline constexpr std::string_view npy_type_name<float16> = "<f2";
template <>
inline constexpr std::string_view npy_type_name<float> = "<f4";
template <>
inline constexpr std::string_view npy_type_name<double> = "<f8";

/// The types of elements that are read.
enum class npy_type : unsigned char {
  int8,
  uint8,
  int16,
  int32,
  int64,
  float16,
  float32,
  float64,
  uint16,
  uint32,
  uint64,
  boolean  ///< a byte that is 0 or not
};

namespace detail {

/// Returns function(Element{}) for the type.
template <class Function>
decltype(auto) with_npy_type(npy_type type, const Function& function) {
  switch (type) {
    case npy_type::int8:
      return function(std::int8_t{});
    case npy_type::uint8:
      return function(std::uint8_t{});
    case npy_type::int16:
      return function(std::int16_t{});
    case npy_type::int32:
      return function(std::int32_t{});
    case npy_type::int64:
      return function(std::int64_t{});
    case npy_type::float16:
      return function(gradus::float16{});
    case npy_type::float32:
      return function(float{});
    case npy_type::uint16:
      return function(std::uint16_t{});
    case npy_type::uint32:
      return function(std::uint32_t{});
    case npy_type::uint64:
      return function(std::uint64_t{});
    case npy_type::boolean:
      return function(bool{});
    case npy_type::float64:
      break;
  }
  return function(double{});
}

/// Finds a type by NumPy's name of it. Sets `reversed` for numbers in big-endian order.
[[nodiscard]] inline npy_type npy_type_of(const std::string& operation, const std::string& name, bool& reversed) {
  // "|u1" is a byte; for one byte any mark of the byte order is the same.
  constexpr std::array<std::string_view, 12> names{"i1", "u1", "i2", "i4", "i8", "f2",
                                                   "f4", "f8", "u2", "u4", "u8", "b1"};
  const char order = name.empty() ? '\0' : name.front();
  const std::string_view kind = name.empty() ? std::string_view{} : std::string_view{name}.substr(1);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool byte = kind.ends_with('1');
    if (kind == names[i] && (order == '<' || order == '>' || order == '=' || (byte && order == '|'))) {
      reversed = order == '>' && !byte;
      return static_cast<npy_type>(i);
    }
  }
  const std::string_view what = kind.starts_with('O')                            ? " (objects of Python)"
                                : kind.starts_with('c')                          ? " (complex numbers)"
                                : kind.starts_with('V')                          ? " (raw bytes)"
                                : kind.starts_with('M') || kind.starts_with('m') ? " (times)"
                                : kind.starts_with('U') || kind.starts_with('S') ? " (texts)"
                                                                                 : "";
  raise<format_error>(operation, "elements of type b1, u1, u2, u4, u8, i1, i2, i4, i8, f2, f4 or f8",
                      {"'", name, "'", what},
                      "save numbers: np.save(path, x.astype('f4')), or x.astype('i4') where they are classes");
}

/// The elements of an array in C order with their bytes in the order of this machine.
[[nodiscard]] inline std::vector<std::uint8_t> npy_in_c_order(std::span<const std::uint8_t> bytes,
                                                              std::span<const index_t> extents, std::size_t one,
                                                              bool fortran, bool reversed) {
  std::vector<std::uint8_t> ordered(bytes.size());
  std::vector<std::size_t> strides(extents.size());  // in bytes, of the file
  std::size_t stride = one;
  for (std::size_t k = 0; k < extents.size(); ++k) {
    const std::size_t axis = fortran ? k : extents.size() - 1 - k;
    strides[axis] = stride;
    stride *= static_cast<std::size_t>(extents[axis]);
  }
  std::vector<index_t> at(extents.size());
  std::size_t from = 0;
  for (std::size_t to = 0; to < ordered.size(); to += one) {
    for (std::size_t k = 0; k < one; ++k) {
      ordered[to + k] = bytes[from + (reversed ? one - 1 - k : k)];
    }
    for (std::size_t axis = extents.size(); axis-- > 0;) {
      from += strides[axis];
      if (++at[axis] < extents[axis]) {
        break;
      }
      from -= static_cast<std::size_t>(at[axis]) * strides[axis];
      at[axis] = 0;
    }
  }
  return ordered;
}

/// The element at any address.
template <class Element>
[[nodiscard]] Element load_element(const std::uint8_t* from) noexcept {
  if constexpr (std::same_as<Element, bool>) {
    return *from != 0;
  } else {
    Element value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
}

}  // namespace detail

/// The array of a .npy file (numpy.lib.format, versions 1.0, 2.0 and 3.0) in C order. Its numbers stay in the file,
/// which is mapped into memory; those in Fortran order or in big-endian order are copied once, when it is made. It is
/// immutable; any number of threads may read it.
///
///   const data::npy_array x{"x.npy"};     // np.save("x.npy", x), of float32
///   const std::span<const float> numbers = x.elements<float>();
class npy_array {
 public:
  /// @param path  of a .npy file, or of an array in a .npz file of np.savez: "set.npz/x"
  /// @param map  false: reads the file into memory (mapped_file)
  /// @throws format_error if the file cannot be read, is not .npy, has elements of another type, or has
  /// fewer or more bytes than its header declares; in a .npz file, also if they do not have its checksum: all are read
  explicit npy_array(const std::string& path, bool map = true, error_location where = error_location::current()) try
      : path_{path}, file_{file_of(path), map}, content_{file_.bytes()} {
    const std::string operation = gradus::join({"npy '", path, "'"});
    if (const std::size_t name = file_of(path).size() + 1; name < path.size()) {
      content_ = detail::npz_member(operation, content_, std::string_view{path}.substr(name));
    }
    detail::npy_header header = detail::read_npy_header(operation, content_);
    bool reversed = false;
    type_ = detail::npy_type_of(operation, header.type, reversed);
    extents_ = std::move(header.extents);
    begin_ = header.begin;
    const std::size_t one = detail::with_npy_type(type_, [](auto element) { return sizeof(element); });
    std::size_t product = one;  // with 1 for an extent of 0: the others must be possible too
    bool empty = false;
    for (const index_t extent : extents_) {
      const auto factor = static_cast<std::size_t>(std::max(extent, index_t{1}));
      if (factor > static_cast<std::size_t>(std::numeric_limits<index_t>::max()) / product) {
        raise<format_error>(operation, "an array that fits the address space",
                            {"the shape ", detail::npy_shape(extents_)},
                            "no machine has this much memory: the header of the file is damaged");
      }
      product *= factor;
      empty = empty || extent == 0;
    }
    const std::size_t bytes = empty ? 0 : product;
    size_ = static_cast<index_t>(bytes / one);
    if (const std::size_t have = content_.size() - begin_; have != bytes) {
      raise<format_error>(operation,
                          {bytes, " bytes after the header, of elements '", type_name(), "' in the shape ",
                           detail::npy_shape(extents_)},
                          {have},
                          have < bytes ? "the file was not copied completely, or is still being written"
                                       : "a .npy file has one array: save several in files of their own");
    }
    if (bytes > 0 && (reversed || (header.fortran && extents_.size() > 1))) {
      ordered_ = detail::npy_in_c_order(content_.subspan(begin_), extents_, one, header.fortran, reversed);
    }
  } catch (error& failure) {
    failure.location_at_call(where);
  }

  /// The path of the file.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// The type of the elements.
  [[nodiscard]] npy_type type() const noexcept { return type_; }
  /// NumPy's name of the type: "<f4".
  [[nodiscard]] std::string_view type_name() const noexcept {
    return detail::with_npy_type(type_, [](auto element) { return npy_type_name<decltype(element)>; });
  }
  /// True for integers and for bool.
  [[nodiscard]] bool has_integers() const noexcept {
    return type_ != npy_type::float16 && type_ != npy_type::float32 && type_ != npy_type::float64;
  }
  /// The extents of the axes; none for a single number.
  [[nodiscard]] std::span<const index_t> extents() const noexcept { return extents_; }
  /// The number of elements.
  [[nodiscard]] index_t size() const noexcept { return size_; }
  /// The elements as bytes, in C order.
  [[nodiscard]] std::span<const std::uint8_t> bytes() const noexcept {
    return ordered_.empty() ? content_.subspan(begin_) : std::span<const std::uint8_t>{ordered_};
  }

  /// The elements in C order, in the memory of the file. They are valid as long as the array.
  /// @throws format_error if the file has elements of another type, or they are not aligned, which NumPy's are
  template <class Element>
  [[nodiscard]] std::span<const Element> elements(error_location where = error_location::current()) const {
    static_assert(!npy_type_name<Element>.empty(), "gradus: .npy files have no elements of this type");
    if (npy_type_name<Element> != type_name()) {
      raise<format_error>({"npy '", path_, "'"}, {"elements of type '", npy_type_name<Element>, "'"},
                          {"'", type_name(), "'"}, "ask for the type of the file, or let read() convert", where);
    }
    if constexpr (std::same_as<Element, bool>) {
      for (const std::uint8_t byte : bytes()) {
        if (byte > 1) {
          raise<format_error>({"npy '", path_, "'"}, "bytes 0 and 1 of type bool", {byte}, "let read() convert", where);
        }
      }
    }
    if (reinterpret_cast<std::uintptr_t>(bytes().data()) % alignof(Element) != 0) {
      raise<format_error>({"npy '", path_, "'"}, {"elements at a multiple of ", alignof(Element), " bytes"},
                          {"elements from byte ", begin_, " on"}, "let read() copy them", where);
    }
    return {reinterpret_cast<const Element*>(bytes().data()), static_cast<std::size_t>(size_)};
  }

  /// Writes the elements first, first + stride, ... to `to`, converted.
  /// @pre 0 <= first and first + (count - 1) * stride < size()
  template <class To>
  void read(index_t first, index_t count, index_t stride, To* to) const noexcept {
    detail::with_npy_type(type_, [&, this](auto element) {
      using from = decltype(element);
      const std::uint8_t* at = bytes().data() + static_cast<std::size_t>(first) * sizeof(from);
      if (stride == 1) {
        for (index_t i = 0; i < count; ++i) {
          to[i] = static_cast<To>(detail::load_element<from>(at + static_cast<std::size_t>(i) * sizeof(from)));
        }
      } else {
        for (index_t i = 0; i < count; ++i) {
          to[i] = static_cast<To>(detail::load_element<from>(at + static_cast<std::size_t>(i * stride) * sizeof(from)));
        }
      }
    });
  }
  /// Writes the elements [first, first + count) to `to`, converted. @pre 0 <= first and first + count <= size()
  template <class To>
  void read(index_t first, index_t count, To* to) const noexcept {
    read(first, count, 1, to);
  }

 private:
  /// "set.npz" of "set.npz/x"; otherwise the path, as of a file in a folder: "set.npz/x.npy".
  [[nodiscard]] static std::string file_of(const std::string& path) {
    const std::size_t archive = path.rfind(".npz/");
    return archive == std::string::npos || path.ends_with(".npy") ? path : path.substr(0, archive + 4);
  }

  std::string path_;
  mapped_file file_;
  std::span<const std::uint8_t> content_;  // of the .npy file: all of the file, or a part of an archive
  npy_type type_ = npy_type::float32;
  std::vector<index_t> extents_;
  std::size_t begin_ = 0;  // of the elements in the file
  index_t size_ = 0;
  std::vector<std::uint8_t> ordered_;  // the elements, where those of the file have another order
};

namespace detail {

/// @throws format_error if the file cannot be written
inline void write_npy_bytes(const std::string& path, std::string_view type, std::span<const index_t> extents,
                            std::span<const std::uint8_t> elements) {
  io::output_file file{path};
  file.write(write_npy_header(type, extents));
  file.write(std::as_bytes(elements));
  file.commit();
}

}  // namespace detail

/// Writes numbers in C order as a .npy file, for np.load(path).
///
///   data::write_npy("errors.npy", errors, {epochs, 2});      // std::vector<double>
///
/// @param numbers  a span, vector or array of a type with a npy_type_name
/// @param extents  the extents of the array
/// @throws shape_error unless the extents are those of the numbers
/// @throws format_error if the file cannot be written
template <class Numbers>
requires requires(const Numbers& numbers) {
  std::span{numbers};
}
void write_npy(const std::string& path, const Numbers& numbers, std::span<const index_t> extents,
               error_location where = error_location::current()) {
  const std::span all{numbers};
  using element = std::remove_const_t<typename decltype(all)::element_type>;
  static_assert(!npy_type_name<element>.empty(),
                "gradus: NumPy has no such numbers: convert them to float, double, float16, an integer or bool");
  at_call(where, [&] {
    std::size_t product = 1;
    bool fits = true;
    for (const index_t extent : extents) {
      const auto factor = static_cast<std::size_t>(std::max(extent, index_t{0}));
      fits = fits && extent >= 0 && (factor == 0 || product <= std::numeric_limits<std::size_t>::max() / factor);
      product *= factor;
    }
    if (!fits || product != all.size()) {
      raise<shape_error>({"write_npy '", path, "'"}, {"extents of ", all.size(), " numbers"},
                         detail::npy_shape(extents));
    }
    detail::write_npy_bytes(path, npy_type_name<element>, extents,
                            {reinterpret_cast<const std::uint8_t*>(all.data()), all.size_bytes()});
  });
}
/// The same with the extents in braces.
template <class Numbers>
requires requires(const Numbers& numbers) {
  std::span{numbers};
}
void write_npy(const std::string& path, const Numbers& numbers, std::initializer_list<index_t> extents,
               error_location where = error_location::current()) {
  write_npy(path, numbers, std::span{extents.begin(), extents.size()}, where);
}

/// Writes a tensor or view on the CPU as a .npy file. The array has the tensor's extents: (n, c, h, w) for images of
/// any layout.
/// @throws format_error if the file cannot be written
template <class Element, int Rank, class Layout>
void write_npy(const std::string& path, const tensor_view<Element, Rank, Layout, cpu>& array,
               error_location where = error_location::current()) {
  using element = std::remove_const_t<Element>;
  const auto& shape = array.extents();
  std::array<index_t, static_cast<std::size_t>(Rank)> extents{};
  for (int axis = 0; axis < Rank; ++axis) {
    extents[static_cast<std::size_t>(axis)] = shape[axis];
  }
  const auto strides = dense_strides<Layout, Rank>(shape);
  const auto count = static_cast<std::size_t>(array.size());
  const auto ordered = std::make_unique<element[]>(count);
  std::array<index_t, static_cast<std::size_t>(Rank)> at{};
  index_t offset = 0;
  for (std::size_t i = 0; i < count; ++i) {
    ordered[i] = array.data()[offset];
    for (std::size_t axis = static_cast<std::size_t>(Rank); axis-- > 0;) {
      offset += strides[axis];
      if (++at[axis] < extents[axis]) {
        break;
      }
      offset -= at[axis] * strides[axis];
      at[axis] = 0;
    }
  }
  write_npy(path, std::span<const element>{ordered.get(), count}, std::span<const index_t>{extents}, where);
}
/// The same for a tensor.
template <class Element, int Rank, class Layout>
void write_npy(const std::string& path, const tensor<Element, Rank, Layout, cpu>& array,
               error_location where = error_location::current()) {
  write_npy(path, array.view(), where);
}

}  // namespace gradus::data

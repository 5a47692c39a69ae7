// SPDX-License-Identifier: BSL-1.0
//
// .safetensors files: a reader, which maps them into memory, and a writer.
#pragma once

#include <algorithm>    // std::lower_bound, std::min, std::sort
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint8_t, std::uint64_t
#include <functional>   // std::less
#include <map>          // std::map
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_lvalue_reference_v, std::is_same_v, std::remove_cvref_t
#include <utility>      // std::as_const, std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/mapped_file.hpp"
#include "gradus/core/output_file.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/detail/elements/convert.hpp"
#include "gradus/io/element_type.hpp"
#include "gradus/io/safetensors.hpp"

namespace gradus::io {

/// A .safetensors file that is mapped into memory: the system reads a page when it is first used. Nothing may shorten
/// the file meanwhile (mapped_file). Any number of threads may read it.
///
///   const io::safetensors_file file{"model.safetensors"};
///   std::vector<float> weight = file.read<float>("conv1.weight");
///   for (const io::safetensors_entry& each : file.tensors()) std::cout << each.name << '\n';
class safetensors_file {
 public:
  /// @param map  false: reads the file into memory
  /// @throws format_error if the file cannot be read, or read_safetensors_header refuses it
  explicit safetensors_file(std::string path, bool map = true, error_location where = error_location::current())
      : path_{std::move(path)},
        file_{path_, map, where},
        header_{read_safetensors_header(join({"read '", path_, "'"}), file_.bytes(), file_.bytes().size(), where)} {
    for (std::size_t i = 0; i < header_.tensors.size(); ++i) {
      by_name_.push_back(i);
    }
    std::sort(by_name_.begin(), by_name_.end(), [&, this](std::size_t a, std::size_t b) { return name(a) < name(b); });
  }

  /// The path of the file.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// What the file says of itself.
  [[nodiscard]] const safetensors_header& header() const noexcept { return header_; }
  /// The tensors in the order of their bytes.
  [[nodiscard]] std::span<const safetensors_entry> tensors() const noexcept { return header_.tensors; }
  /// The metadata of a key; null if there is none.
  [[nodiscard]] const std::string* metadata(std::string_view key) const {
    const auto at = header_.metadata.find(key);
    return at == header_.metadata.end() ? nullptr : &at->second;
  }

  /// The tensor of a name; null if there is none.
  [[nodiscard]] const safetensors_entry* find(std::string_view wanted) const noexcept {
    const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), wanted,
                                     [&, this](std::size_t i, std::string_view text) { return name(i) < text; });
    return at != by_name_.end() && name(*at) == wanted ? &header_.tensors[*at] : nullptr;
  }
  /// The tensor of a name. @throws format_error with names of the file if there is none
  [[nodiscard]] const safetensors_entry& entry(std::string_view wanted,
                                               error_location where = error_location::current()) const {
    const safetensors_entry* const found = find(wanted);
    if (found == nullptr) {
      constexpr std::size_t most_names = 10;
      std::string names;
      for (std::size_t i = 0; i < std::min(by_name_.size(), most_names); ++i) {
        append_text(names, {i == 0 ? "'" : ", '", name(by_name_[i]), "'"});
      }
      raise<format_error>(
          {"read '", path_, "'"}, {"a tensor '", wanted, "'"},
          {"a file of ", by_name_.size(), " tensors: ", names, by_name_.size() > most_names ? " and others" : ""}, {},
          where);
    }
    return *found;
  }

  /// The bytes of a tensor of this file. They need not be aligned. They are valid as long as the object.
  [[nodiscard]] std::span<const std::uint8_t> bytes(const safetensors_entry& tensor) const noexcept {
    return file_.bytes().subspan(header_.buffer_begin + tensor.begin, tensor.end - tensor.begin);
  }

  /// Reads the elements of a tensor in row-major order. Numbers of any type are read as real numbers, rounded to the
  /// nearest of type `Element`; otherwise elements are read as their own type, and BOOL as std::uint8_t too.
  /// @param into  as many elements as the tensor has
  /// @throws shape_error if into has another size
  /// @throws format_error if the tensor has elements of another type
  template <class Element>
  void read(const safetensors_entry& tensor, std::span<Element> into,
            error_location where = error_location::current()) const {
    require_readable(tensor, detail::reads_as<Element>(tensor.type), name_of(element_type_of<Element>()), into.size(),
                     where);
    detail::convert_elements(tensor.type, bytes(tensor).data(), into.data(), into.size());
  }
  /// The elements of a tensor in row-major order, as above.
  /// @throws format_error also if there is no such tensor
  template <class Element>
  [[nodiscard]] std::vector<Element> read(std::string_view wanted,
                                          error_location where = error_location::current()) const {
    static_assert(!std::is_same_v<Element, bool>,
                  "gradus: a std::vector<bool> has no elements of its own: read<std::uint8_t> reads 0 and 1");
    const safetensors_entry& tensor = entry(wanted, where);
    std::vector<Element> elements(elements_of(tensor));
    read(tensor, std::span<Element>{elements}, where);
    return elements;
  }

  /// The number of elements of a tensor.
  [[nodiscard]] static std::size_t elements_of(const safetensors_entry& tensor) noexcept {
    return (tensor.end - tensor.begin) / size_of(tensor.type);
  }

 private:
  [[nodiscard]] std::string_view name(std::size_t i) const noexcept { return header_.tensors[i].name; }

  void require_readable(const safetensors_entry& tensor, bool readable, std::string_view type, std::size_t count,
                        error_location where) const {
    if (!readable) {
      raise<format_error>({"read '", tensor.name, "' of '", path_, "'"}, {"elements of the type ", type},
                          name_of(tensor.type), "read it as that type, or as float or double", where);
    }
    if (count != elements_of(tensor)) {
      raise<shape_error>({"read '", tensor.name, "' of '", path_, "'"},
                         {"memory for ", elements_of(tensor), " elements ", detail::shape_text(tensor.shape)}, {count},
                         {}, where);
    }
  }

  std::string path_;
  mapped_file file_;
  safetensors_header header_;
  std::vector<std::size_t> by_name_;  // indices of tensors
};

namespace detail {

/// Writes a file: its header, and for each tensor in the order of the header what fill(tensor) returns: a span of its
/// bytes, which is valid until the next call.
template <class Fill>
void write_safetensors(const std::string& path, const safetensors_header& header, const Fill& fill, file_system& files,
                       error_location where) {
  output_file file{path, files, where};
  file.write(safetensors_head(header, where), where);
  for (const safetensors_entry& each : header.tensors) {
    file.write(fill(each), where);
  }
  file.commit(where);
}

}  // namespace detail

/// Writes tensors to a .safetensors file.
///
///   io::safetensors_writer writer;
///   writer.add("mean", mean, {3});              // std::vector<float>
///   writer.add("image", pixels, {3, 32, 32});   // in row-major order: the last axis is the fastest
///   writer.metadata("format", "pt");            // as files of PyTorch have it
///   writer.write("statistics.safetensors");
class safetensors_writer {
 public:
  /// Adds a tensor. The writer refers to the numbers: they must not change or go away before `write`.
  /// @param numbers  a vector or span of elements in row-major order, as many as the product of the shape
  /// @param shape  extents, at least 0; none for a single number
  /// @throws shape_error if there are more or fewer numbers than the shape says
  template <class Numbers>
  safetensors_writer& add(std::string name, Numbers&& numbers, std::vector<index_t> shape,
                          error_location where = error_location::current()) {
    const std::span view{std::as_const(numbers)};
    using element = typename decltype(view)::value_type;
    static_assert(std::is_lvalue_reference_v<Numbers> ||
                      std::is_same_v<std::remove_cvref_t<Numbers>, std::span<element>> ||
                      std::is_same_v<std::remove_cvref_t<Numbers>, std::span<const element>>,
                  "gradus: the writer refers to the numbers, but a temporary is destroyed at the end of this "
                  "statement: give it a name on the line before (auto it = ...;) and pass the name");
    add_bytes(std::move(name), element_type_of<element>(), std::move(shape), std::as_bytes(view), where);
    return *this;
  }
  /// Sets a text of "__metadata__". A later call for the same key replaces it.
  safetensors_writer& metadata(std::string key, std::string value) {
    metadata_[std::move(key)] = std::move(value);
    return *this;
  }

  /// Writes the file under a temporary name and renames it: a file of that name is replaced when the new one is
  /// complete.
  /// @throws format_error if it cannot be written
  /// @throws configuration_error as lay_out_safetensors does
  void write(const std::string& path, file_system& files = operating_system(),
             error_location where = error_location::current()) const {
    const safetensors_header header = lay_out_safetensors(tensors_, metadata_, where);
    detail::write_safetensors(
        path, header, [&, this](const safetensors_entry& each) { return bytes_.find(each.name)->second; }, files,
        where);
  }

 private:
  void add_bytes(std::string name, element_type type, std::vector<index_t> shape, std::span<const std::byte> bytes,
                 error_location where) {
    std::uint64_t expected = 0;
    if (!detail::bytes_of(shape, type, expected) || expected != bytes.size()) {
      raise<shape_error>({"safetensors_writer.add '", name, "'"},
                         {"the elements of the shape ", detail::shape_text(shape)}, {bytes.size() / size_of(type)}, {},
                         where);
    }
    if (!bytes_.emplace(name, bytes).second) {
      raise<configuration_error>("safetensors_writer.add", "tensors with different names", {"'", name, "' twice"}, {},
                                 where);
    }
    tensors_.push_back({.name = std::move(name), .type = type, .shape = std::move(shape)});
  }

  std::map<std::string, std::span<const std::byte>, std::less<>> bytes_;
  std::vector<safetensors_entry> tensors_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

}  // namespace gradus::io

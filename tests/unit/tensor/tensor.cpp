// SPDX-License-Identifier: BSL-1.0
//
// Tensors and views: memory, coordinates, parts; a device with nothing but what is required.
#include <boost/test/unit_test.hpp>
#include <string>
#include <utility>

#include "archetypes.hpp"
#include "gradus/tensor/tensor.hpp"

using gradus::index_t;

BOOST_AUTO_TEST_SUITE(tensors)

BOOST_AUTO_TEST_CASE(starts_at_zero_and_copies_are_deep) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::tensor<float, 2> a{device, {2, 3}};
  BOOST_TEST(a(1, 2) == 0.0F);
  a(1, 2) = 5;
  gradus::tensor<float, 2> b = a;
  b(1, 2) = 6;
  BOOST_TEST(a(1, 2) == 5.0F);
  gradus::tensor<float, 2> c = std::move(b);
  BOOST_TEST(c(1, 2) == 6.0F);
  b = a;
  BOOST_TEST(b(1, 2) == 5.0F);
  BOOST_TEST(c.data()[5] == 6.0F);
}

BOOST_AUTO_TEST_CASE(coordinates_are_checked_by_at) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::image_tensor<double, gradus::nhwc> x{device, {2, 3, 4, 5}};
  x.at(1, 2, 3, 4) = 7;
  BOOST_TEST(x.data()[x.size() - 1] == 7.0);
  BOOST_CHECK_EXCEPTION((void)x.at(0, 3, 0, 0), gradus::shape_error, [](const auto& e) {
    return std::string{e.what()}.find("coordinates inside (2, 3, 4, 5), got (0, 3, 0, 0)") != std::string::npos;
  });
  BOOST_CHECK_THROW((void)x.at(0, 0, -1, 0), gradus::shape_error);
}

BOOST_AUTO_TEST_CASE(parts_and_other_extents_share_memory) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::tensor<float, 2> x{device, {4, 3}};
  const auto part = x.view().slice(1, 2);
  part(0, 1) = 8;
  BOOST_TEST(x(1, 1) == 8.0F);
  BOOST_TEST(x.view().reshape(gradus::extents<1>{12})(4) == 8.0F);
  BOOST_CHECK_THROW((void)x.view().slice(3, 2), gradus::shape_error);
  BOOST_CHECK_THROW((void)x.view().reshape(gradus::extents<1>{11}), gradus::shape_error);
}

BOOST_AUTO_TEST_CASE(rank_0_has_a_value) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::tensor<double, 0> x{device, {}};
  x() = 3;
  BOOST_TEST(x.value() == 3.0);
  BOOST_TEST(x.at() == 3.0);
  BOOST_TEST(x.size() == 1);
}

BOOST_AUTO_TEST_CASE(a_device_with_the_required_members_is_enough) {
  archetypes::device device;
  {
    gradus::tensor<float, 3, gradus::row_major, archetypes::device> a{device, {2, 3, 4}};
    auto b = a;
    auto c = std::move(a);
    b = c;
    BOOST_TEST(b.view().slice(0, 1).size() == 12);
    BOOST_TEST(device.blocks() == 2);
  }
  BOOST_TEST(device.blocks() == 0);
}

BOOST_AUTO_TEST_SUITE_END()

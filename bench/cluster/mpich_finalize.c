// SPDX-License-Identifier: BSL-1.0
//
// Preloaded by run_on_cluster into the programs that it runs: lets MPI_Finalize of MPICH before 4.2 end over TCP.
//
// That MPI_Finalize closes its connections, which takes the other side, and then waits for all ranks without serving
// the network: over the TCP of UCX a rank that comes a little later waits for ever
// (https://github.com/pmodels/mpich/pull/6596 has removed the wait). Here nothing is closed one by one: all ranks agree
// that they are done, what they sent last gets time to leave, and the connections end with the process.
#include <mpi.h>
#include <stddef.h>

/// Of UCX: begins to close a connection; NULL: done.
void* ucp_disconnect_nb(void* connection) {
  (void)connection;
  return NULL;
}

int MPI_Finalize(void) {
  PMPI_Barrier(MPI_COMM_WORLD);
  const double end = PMPI_Wtime() + 0.02;
  for (int present = 0; PMPI_Wtime() < end;) {
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &present, MPI_STATUS_IGNORE);
  }
  return PMPI_Finalize();
}

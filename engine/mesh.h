/* The mesh: which rank sits where on the axes pipeline x data x sequence x tensor, tensor varying
 * fastest. Pure arithmetic. */
#ifndef DS_MESH_H
#define DS_MESH_H

#include "engine/base/err.h"

#include <stdint.h>

enum mesh_axis { MESH_PIPELINE, MESH_DATA, MESH_SEQUENCE, MESH_TENSOR, MESH_AXES };

struct mesh {
    int world;
    int size[MESH_AXES];
};

/* sizes of 0 mean auto: at most one is filled (data when several are 0, the others 1). An axis product
 * that does not divide world is ERR_INPUT naming the numbers. */
int mesh_init(struct mesh *m, int world, const int64_t sizes[MESH_AXES], struct err *err);
void mesh_coords(const struct mesh *m, int rank, int at[MESH_AXES]);
int mesh_rank(const struct mesh *m, const int at[MESH_AXES]);
/* The ranks of this rank's group along an axis, in axis order; out has size[axis] places. Returns own
 * index in it. */
int mesh_group(const struct mesh *m, int rank, enum mesh_axis axis, int *out);

#endif

# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options with which a module reaches a cluster."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragment C(gpuops.k8s.cluster_options)."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path of the kubeconfig. Several paths may be joined by colons.
      - Without it, and without O(host), E(K8S_AUTH_KUBECONFIG), E(KUBECONFIG) and C(~/.kube/config) are
        looked at in this order, then the account of the pod that the module runs in.
    type: path
  context:
    description:
      - Name of the context in the kubeconfig; E(K8S_AUTH_CONTEXT) says the same.
      - Without it the current context is used.
    type: str
  host:
    description:
      - Address of the API server, instead of the one in the kubeconfig; E(K8S_AUTH_HOST) says the same.
    type: str
  api_key:
    description:
      - Bearer token, instead of the credentials in the kubeconfig; E(K8S_AUTH_API_KEY) says the same.
    type: str
  ca_cert:
    description:
      - Certificate authority that signed the server's certificate; E(K8S_AUTH_SSL_CA_CERT) says the same.
    type: path
    aliases: [ssl_ca_cert]
  client_cert:
    description:
      - Client certificate; E(K8S_AUTH_CERT_FILE) says the same.
    type: path
    aliases: [cert_file]
  client_key:
    description:
      - Key of the client certificate; E(K8S_AUTH_KEY_FILE) says the same.
    type: path
    aliases: [key_file]
  validate_certs:
    description:
      - Whether the server's certificate is checked; E(K8S_AUTH_VERIFY_SSL) says the same.
      - Without it the kubeconfig decides.
    type: bool
    aliases: [verify_ssl]
  request_timeout:
    description:
      - Seconds that one request may take.
    type: int
    default: 30
requirements:
  - python >= 3.12 with the library kubernetes, on the host that runs the module (most often localhost)
"""
